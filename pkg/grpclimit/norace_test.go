//go:build !race

package grpclimit_test

const raceDetector = false
