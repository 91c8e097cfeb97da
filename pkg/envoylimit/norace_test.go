//go:build !race

package envoylimit

const raceDetector = false
