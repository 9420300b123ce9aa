//go:build tools

// Package tools pins go-tpc, TPC-C for the tests with real databases; tools/setup.sh builds it.
package tools

import _ "github.com/pingcap/go-tpc/cmd/go-tpc"
