module github.com/whence-dev/whence/client

go 1.26.0
