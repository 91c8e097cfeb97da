module github.com/offpath-io/offpath/loadtest/peers

go 1.26.0

require (
	github.com/offpath-io/offpath v0.0.0
	github.com/sethvargo/go-limiter v0.7.1
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgraph-io/ristretto/v2 v2.4.2 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/offpath-io/offpath => ../..
