# Contract: `find_package(hip VERSION)` accepts what is as new as was asked for.
set(PACKAGE_VERSION "6.4.0")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
endif()
