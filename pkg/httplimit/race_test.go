//go:build race

package httplimit_test

const raceDetector = true // which allocates, and drops what pools hold
