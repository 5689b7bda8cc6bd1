// How a c10::Buffer travels through Python: inside a capsule that owns it.
#pragma once

#include <c10/core/Buffer.h>
#include <c10/core/Error.h>
#include <torch/csrc/python_abi.h>

namespace torch {

constexpr const char* kBufferCapsule = "torch.Buffer";

inline void delete_capsule(PyObject* capsule) {
  c10::delete_buffer(static_cast<c10::Buffer*>(PyCapsule_GetPointer(capsule, kBufferCapsule)));
}

// The buffer that `capsule` owns; nullptr with a Python error for any other object.
inline c10::Buffer* unwrap(PyObject* capsule) {
  return static_cast<c10::Buffer*>(PyCapsule_GetPointer(capsule, kBufferCapsule));
}

inline PyObject* raise_last_error() {
  PyErr_SetString(PyExc_RuntimeError, c10::last_error());
  return nullptr;
}

// Takes ownership of `buffer`; nullptr becomes a RuntimeError with the last message.
inline PyObject* wrap(c10::Buffer* buffer) {
  if (buffer == nullptr) {
    return raise_last_error();
  }
  PyObject* capsule = PyCapsule_New(buffer, kBufferCapsule, delete_capsule);
  if (capsule == nullptr) {
    c10::delete_buffer(buffer);
  }
  return capsule;
}

}  // namespace torch
