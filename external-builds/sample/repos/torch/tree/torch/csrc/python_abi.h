// Contract: builds work for a Python without its headers, through the part of its Stable ABI (PEP 384) used here.
//
// Python's own headers are preferred. These few functions have kept their shape since Python 3.2 (64 bits, with the GIL).
#pragma once

#if !defined(TORCH_OWN_PYTHON_ABI) && __has_include(<Python.h>)
#include <Python.h>
#else

extern "C" {

typedef __PTRDIFF_TYPE__ Py_ssize_t;
typedef struct _object {
  Py_ssize_t ob_refcnt;
  void* ob_type;
} PyObject;

typedef PyObject* (*PyCFunction)(PyObject*, PyObject*);
typedef void (*PyCapsule_Destructor)(PyObject*);

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

extern PyObject* PyExc_RuntimeError;

PyObject* PyModule_Create2(PyModuleDef*, int);
int PyArg_ParseTuple(PyObject*, const char*, ...);
void PyErr_SetString(PyObject*, const char*);
PyObject* PyErr_Occurred(void);
void Py_DecRef(PyObject*);
PyObject* PyCapsule_New(void*, const char*, PyCapsule_Destructor);
void* PyCapsule_GetPointer(PyObject*, const char*);
PyObject* PyFloat_FromDouble(double);
double PyFloat_AsDouble(PyObject*);
PyObject* PyLong_FromSsize_t(Py_ssize_t);
PyObject* PyUnicode_FromString(const char*);
PyObject* PyList_New(Py_ssize_t);
Py_ssize_t PyList_Size(PyObject*);
PyObject* PyList_GetItem(PyObject*, Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject*);

}  // extern "C"

#define METH_VARARGS 0x0001
#define PYTHON_API_VERSION 1013
#define PyModuleDef_HEAD_INIT {{1, nullptr}, nullptr, 0, nullptr}
#define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*

#endif
