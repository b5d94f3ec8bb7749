module github.com/sealog/sealog/sdk/go

go 1.22
