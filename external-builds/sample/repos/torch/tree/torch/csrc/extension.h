// Contract: the header an extension of torch includes. A buffer travels through Python in a capsule that owns it.
#pragma once

#include <ATen/Ops.h>
#include <c10/core/Error.h>
#include <torch/csrc/python_abi.h>

namespace torch {

constexpr const char* kBufferCapsule = "torch.Buffer";

// The buffer that `capsule` owns; nullptr with a Python error for any other object.
inline c10::Buffer* unwrap(PyObject* capsule) {
  return static_cast<c10::Buffer*>(PyCapsule_GetPointer(capsule, kBufferCapsule));
}

inline void delete_capsule(PyObject* capsule) { c10::delete_buffer(unwrap(capsule)); }

// Takes ownership of `buffer`; nullptr becomes a RuntimeError with the last message.
inline PyObject* wrap(c10::Buffer* buffer) {
  if (buffer == nullptr) {
    PyErr_SetString(PyExc_RuntimeError, c10::last_error());
    return nullptr;
  }
  PyObject* capsule = PyCapsule_New(buffer, kBufferCapsule, delete_capsule);
  if (capsule == nullptr) {
    c10::delete_buffer(buffer);
  }
  return capsule;
}

}  // namespace torch
