// Contract: builds work for a Python without its headers, through the part of its Stable ABI (PEP 384) used here.
#pragma once

#if !defined(TRITON_OWN_PYTHON_ABI) && __has_include(<Python.h>)
#include <Python.h>
#else

extern "C" {

typedef __PTRDIFF_TYPE__ Py_ssize_t;
typedef struct _object {
  Py_ssize_t ob_refcnt;
  void* ob_type;
} PyObject;

typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);

struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
};

struct PyModuleDef_Base {
  PyObject ob_base;
  PyObject* (*m_init)(void);
  Py_ssize_t m_index;
  PyObject* m_copy;
};

struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  Py_ssize_t m_size;
  PyMethodDef* m_methods;
  void* m_slots;
  void* m_traverse;
  void* m_clear;
  void* m_free;
};

extern PyObject* PyExc_ValueError;

PyObject* PyModule_Create2(PyModuleDef*, int);
int PyArg_ParseTuple(PyObject*, const char*, ...);
void PyErr_SetString(PyObject*, const char*);
PyObject* PyLong_FromSsize_t(Py_ssize_t);

}  // extern "C"

#define METH_VARARGS 0x0001
#define PYTHON_API_VERSION 1013
#define PyModuleDef_HEAD_INIT {{1, nullptr}, nullptr, 0, nullptr}
#define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*

#endif
