package units

import (
	"testing"
	"time"
)

func TestOffset(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "+1.5ms": 1500 * time.Microsecond, "-1h2ns": -time.Hour - 2, "0s": 0,
	} {
		if got, err := parseOffset(text); err != nil || time.Duration(got) != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
		// The standard library is the oracle of the notation.
		if std, err := time.ParseDuration(text); err != nil || std != want {
			t.Errorf("%q: the standard library says %d, %v", text, std, err)
		}
	}
	refuse(t, func(s string) error {
		_, err := parseOffset(s)
		return err
	}, "as in 10s or -10s", "", "-", "--1s", "+-1s", "10", "- 1s", "9223372036854775808ns")
	prints(t, map[string]Offset{"-10s": -10e9, "1.5us": 1500, "0s": 0})
}

func TestDrift(t *testing.T) {
	for text, want := range map[string]Drift{
		"100ppm": 100_000, "-0.5ppm": -500, "+20ppb": 20, "0ppm": 0, "-7ppb": -7,
	} {
		if got, err := parseDrift(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	refuse(t, func(s string) error {
		_, err := parseDrift(s)
		return err
	}, "as in 100ppm or -20ppb", "", "ppm", "100", "0.5ppb", "1%", "--1ppm", "1e3ppm",
		"9223372036854775807ppb", "9223372036854775808ppb", "1 ppm")
	prints(t, map[string]Drift{"100ppm": 100_000, "-500ppb": -500, "0ppm": 0})
}
