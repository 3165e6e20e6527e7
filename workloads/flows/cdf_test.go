package flows

import (
	"math"
	"strings"
	"testing"
)

// TestReadSizes holds that the three ways of public files give the same distribution, the one
// that is built in where the file is the same.
func TestReadSizes(t *testing.T) {
	percent := "0 0\n10000 15\n20000 20\n30000 30\n50000 40\n80000 53\n200000 60\n1000000 70\n2000000 80\n" +
		"5000000 90\n10000000 97\n30000000 100\n"
	shares := "# DCTCP\r\n\n0     0\r\n10000 0.15\n20000 0.2\n30000, .3\n50000\t0.4 # comment\n80000 " +
		"0.53\n200000 0.6\n1e6 0.7\n2000000 0.8\n5000000 0.9\n10000000 0.97\n30000000 1"
	want := Published["web-search"]
	for name, text := range map[string]string{"per cent": percent, "shares": shares} {
		got, err := ReadSizes(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for share := 0.0; share <= 1; share += 1. / 64 {
			if a, b := got.At(share), want.At(share); math.Abs(float64(a)-float64(b)) > 1 {
				t.Errorf("%s: %v at %v, want %v", name, a, share, b)
			}
		}
	}
	// ns-2's, in packets, half of the messages of one.
	packets, err := ReadSizes("ns-2", []byte("1 1 0.5\n3 1 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s := packets.Scaled(1460); s.At(0.2) != 1460 || s.At(0.75) != 2*1460 || s.Mean() != 1460*1.5 {
		t.Errorf("packets: %v, %v, mean %v", s.At(0.2), s.At(0.75), s.Mean())
	}
}

// TestWrongSizes holds that a file that is none says where and why.
func TestWrongSizes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "f: the file has no point",
		"# nothing\n":                         "f: the file has no point",
		"10 0\n20\n":                          "f:2: 1 values",
		"10 0 0 1\n":                          "f:1: 4 values",
		"10 0\nten 1\n":                       `f:2: size "ten" is no number`,
		"10 0\n-1 1\n":                        `f:2: size "-1" is no number`,
		"10 0\n20 NaN\n":                      `f:2: share "NaN" is no number`,
		"10 0\n1e999 1\n":                     "f:2: size",
		"10 0\n20 0.5\n\n15 1\n":              "f:4: size 15 with share 1 after size 20 with share 0.5",
		"10 0.5\n20 0.4\n":                    "f:2: size 20 with share 0.4",
		"10 0\n20 97\n":                       "f:2: the last share is 97, want 1, or 100",
		"0 0\n0 1\n":                          "f:2: the largest size is 0",
		strings.Repeat("1 1\n", mostPoints+1): "more than 65536 points",
	} {
		if _, err := ReadSizes("f", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
	}
}

// FuzzReadSizes holds that whatever is read gives sizes.
func FuzzReadSizes(f *testing.F) {
	for _, text := range []string{"0 0\n10000 15\n30000 100\n", "1 1 0.5\n3 1 1\n", "5 1\n", "0 0.5\n1 1",
		"1e308 1"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ReadSizes("f", text)
		if err != nil {
			return
		}
		for _, share := range []float64{0, 0.3, 0.999999, 1} {
			if s.At(share) < 1 {
				t.Errorf("%v at %v", s.At(share), share)
			}
		}
		if m := s.Mean(); !(m >= 0) {
			t.Errorf("mean %v", m)
		}
	})
}
