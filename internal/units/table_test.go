package units

import (
	"fmt"
	"testing"
)

// TestUnits: a table has the largest unit in which its median is at least 1, and four digits.
func TestUnits(t *testing.T) {
	for _, c := range []struct {
		of     Scale
		values []float64
		want   string
	}{
		{Times, []float64{0.000009, 0.0632, 3.47}, "ms 0.009000 63.20 3470"},
		{Times, []float64{0, 0.00002}, "us 0 20.00"},
		{Times, nil, "s"},
		{Times, []float64{0, 1e-12}, "ns 0 0.001000"},
		{Rates, []float64{100e6, 75.07e6, 12345}, "Mbit/s 100.0 75.07 0.01235"},
		{Rates, []float64{40e9, 39.99996e9}, "Gbit/s 40.00 40.00"},
		{Scale{{"B", 1}}, []float64{1234567.8, 9.9996}, "B 1234568 10.00"},
	} {
		u := c.of.Of(c.values...)
		got := u.Name
		for _, v := range c.values {
			got += " " + u.Text(v)
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
	if got := fmt.Sprint(Digits(-0.5), Digits(1e-300*1e-300)); got != "-0.50000" {
		t.Errorf("got %s", got)
	}
}
