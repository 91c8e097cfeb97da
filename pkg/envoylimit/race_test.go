//go:build race

package envoylimit

const raceDetector = true
