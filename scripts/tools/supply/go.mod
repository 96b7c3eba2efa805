// The license check is a module of its own: programs do not need its library.
module github.com/whence-dev/whence/scripts/tools/supply

go 1.26.0

require github.com/google/licensecheck v0.3.1
