module github.com/brellium/brellium-go

go 1.25.0
