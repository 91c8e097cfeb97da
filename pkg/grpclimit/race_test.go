//go:build race

package grpclimit_test

const raceDetector = true // which allocates, and drops what pools hold
