//go:build race

package transportstest

const raceEnabled = true
