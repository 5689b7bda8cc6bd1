// Everything an extension of torch needs.
#pragma once

#include <ATen/Ops.h>
#include <c10/core/Error.h>
#include <torch/csrc/buffer_capsule.h>
#include <torch/csrc/python_abi.h>
