// Package helper counts as tests.
package helper

func Help() {}
