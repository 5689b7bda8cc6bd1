// Found before PyTorch's own header of this name, which is its whole C++ front end: modules, optimizers, data
// loaders, and the bindings to Python. torch-scatter and torch-cluster include it in every file for the tensors
// alone, and half of their compile time goes into the rest.
#pragma once
#include <torch/types.h>
