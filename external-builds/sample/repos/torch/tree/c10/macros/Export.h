// Marks what a library of torch offers to others: everything else is hidden.
#pragma once

#define C10_API __attribute__((visibility("default")))
