package units

import (
	"encoding"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"
)

func TestRate(t *testing.T) {
	for text, want := range map[string]Rate{
		"1gbit": 1e9, "2.5gbit": 2.5e9, "100mbit": 1e8, "800kbit": 8e5, "64bit": 64, "0bit": 0,
		"1.6tbit":    1.6e12,
		"200 Mbit/s": 2e8, "200Mbit/s": 2e8, "200 mbit": 2e8, "200Mbit": 2e8, "1 Gbit": 1e9,
		"2.5 Gbit/s": 2.5e9, "800 kbit/s": 8e5, "64 bit/s": 64, "1 Tbit/s": 1e12, "1gbit/s": 1e9,
		"0.001kbit": 1, "017gbit": 17e9, "0.000000000001tbit": 1, "18446744073709551615bit": math.MaxUint64,
	} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	refuse(t, func(s string) error {
		_, err := ParseRate(s)
		return err
	}, "kbit, mbit, gbit or tbit, as in 1gbit",
		"", "1", "gbit", "1GBit", "1Kbit", "1 Kbit/s", "1gbps", "1  gbit", "1\tgbit", "1 /s", "1gbit /s",
		"1gbit/", "1gbit/S", "1gbit/s/s", "1g bit", "1 g bit/s", " bit", " Mbit/s", "MMbit", "1 MB/s",
		" 1gbit", "1gbit ", "-1gbit", "+1gbit", "1e9bit", "0x1bit", "1/2gbit", ".5gbit", "1.gbit",
		"1.2.3gbit",
		"1.5bit", "0.0001kbit", "18446744073709551616bit", "20000000tbit", "１gbit", "1_000bit",
		strings.Repeat("1", 41)+"bit")
	prints(t, map[string]Rate{"0bit": 0, "1gbit": 1e9, "2500mbit": 2.5e9, "1600gbit": 1.6e12, "64bit": 64,
		"1001bit": 1001, "18446744073709551615bit": math.MaxUint64})
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"1500B": 1500, "40KB": 40_000, "16MiB": 16 << 20, "2GiB": 2 << 30, "1.5KB": 1500, "0.5KiB": 512,
		"0B": 0, "2GB": 2e9, "3MB": 3e6,
		"18446744073709551615B": math.MaxUint64,
	} {
		if got, err := ParseBytes(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	refuse(t, func(s string) error { _, err := ParseBytes(s); return err }, "KiB, MiB or GiB, as in 40KB",
		"", "1500", "B", "1kB", "1K", "1TB", "1.5B", "0.3KiB", "-1B", "1 KB", "1e3B", "17179869184GiB")
	prints(t, map[string]Bytes{"0B": 0, "1500B": 1500, "40KB": 40_000, "256KiB": 256 << 10, "16MiB": 16 << 20,
		"1GiB": 1 << 30, "1GB": 1e9, "1MB": 1e6, "1023B": 1023})
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10us": 10 * time.Microsecond, "10\u00b5s": 10 * time.Microsecond, "10\u03bcs": 10 * time.Microsecond,
		"1.5s":  1500 * time.Millisecond,
		"1m30s": 90 * time.Second, "2h": 2 * time.Hour, "5ns": 5, "0s": 0,
		"1ms1m": time.Minute + time.Millisecond, "0.001us": 1, "100ms": 100 * time.Millisecond,
		"9223372036854775807ns": math.MaxInt64,
	} {
		if got, err := ParseDuration(text); err != nil || time.Duration(got) != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
		// The standard library is the oracle of the notation.
		if std, err := time.ParseDuration(text); err != nil || std != want {
			t.Errorf("%q: the standard library says %d, %v", text, std, err)
		}
	}
	refuse(t, func(s string) error {
		_, err := ParseDuration(s)
		return err
	}, "ns, us, ms, s, m or h, as in 10us",
		"", "0", "10", "s", "-1s", "-0s", "+1s", "1d", ".5s", "5.s", "1s 2s", "0.5ns", "0.0001us", "1e3s",
		"9223372036854775808ns", "3000000h", "1.2.3s",
		strings.Repeat("1s", 51))
	prints(t, map[string]Duration{"0s": 0, "10us": 10_000, "1.5us": 1500, "1m30s": 90e9, "5ns": 5,
		"1m0s": 60e9})
}

func TestRatio(t *testing.T) {
	for text, want := range map[string]Ratio{
		"0.1%": {1, 1000}, "1/1000": {1, 1000}, "2/2000": {1, 1000}, "100%": {1, 1}, "1/1": {1, 1},
		"0": {0, 1}, "0.0": {0, 1}, "0%": {0, 1}, "0/7": {0, 1},
		"1/3": {1, 3}, "33.3%": {333, 1000}, "0.5/1.5": {1, 3},
		"18446744073709551614/18446744073709551615": {18446744073709551614, 18446744073709551615},
		"1e-12": {1, 1e12}, "1E-09": {1, 1e9}, "2.5e-13": {1, 4e12}, "1e-3": {1, 1000}, "0e-9": {0, 1},
		"5e-19": {1, 2e18},
	} {
		if got, err := ParseRatio(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	refuse(t, func(s string) error {
		_, err := ParseRatio(s)
		return err
	}, "between 0% and 100%, as in 0.1%, 1/1000 or 1e-12",
		"", "%", "101%", "101", "2/1", "1/0", "1/", "/2", "1/2%", "1/2/3", "-1%", "1 %", "0.1%%",
		"1e-", "e-9", "1e9", "1e+9", "1e--9", "1e-+9", "1e-9%", "1e-9/2", "-1e-9", ".5e-9", "1e-009", "1e-20",
		"1/18446744073709551616", "0.000000000000000000001%")
	for text, want := range map[string]string{
		"1": "want 1% or 100%, because", "0.01": "want 0.01% or 1%, because",
		"0.5": "want 0.5% or 50%, because",
		"1.0": "want 1.0% or 100%, because", "5": "want 5%", "100": "want 100%", "1.1": "want 1.1%",
		"1e-2": "want 1%", "2.5e-3": "want 0.25%",
	} {
		if r, err := ParseRatio(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v; want %q", text, r, err, want)
		}
	}
	prints(t, map[string]Ratio{"0%": {}, "0.1%": {1, 1000}, "50%": {1, 2}, "100%": {1, 1}, "1/3": {1, 3},
		"12.5%": {1, 8}, "0.0001%": {1, 1e6}, "9.9e-7": {99, 1e8}, "1e-7": {1, 1e7}, "1e-12": {1, 1e12},
		"2.5e-13": {1, 4e12}, "1e-15": {1, 1e15}, "1/3000000": {1, 3e6}, "0.00015%": {3, 2e6},
		"1.23456789012e-8": {30864197253, 25e17}})
	if r := (Ratio{}); !r.IsZero() || r.Float() != 0 {
		t.Errorf("the zero ratio: %v, %v", r.IsZero(), r.Float())
	}
	if got := (Ratio{1, 4}).Float(); got != 0.25 {
		t.Errorf("got %v", got)
	}
}

func refuse(t *testing.T, parse func(string) error, want string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error that says %q", text, err, want)
		}
	}
}

func prints[T interface{ String() string }](t *testing.T, values map[string]T) {
	t.Helper()
	for want, value := range values {
		if got := value.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSONIsText(t *testing.T) {
	type all struct {
		Rate     Rate
		Bytes    Bytes
		Duration Duration
		Ratio    Ratio
	}
	text, err := json.Marshal(all{1e9, 40_000, 10_000, Ratio{1, 1000}})
	if want := `{"Rate":"1gbit","Bytes":"40KB","Duration":"10us","Ratio":"0.1%"}`; err != nil ||
		string(text) != want {
		t.Errorf("got %s, %v", text, err)
	}
	var back all
	if err := json.Unmarshal(text, &back); err != nil || back != (all{1e9, 40_000, 10_000, Ratio{1, 1000}}) {
		t.Errorf("got %+v, %v", back, err)
	}
}

func TestBytesPerSecond(t *testing.T) {
	for rate, want := range map[Rate]uint64{0: 0, 7: 0, 8: 1, 1e9: 125e6,
		math.MaxUint64: math.MaxUint64 / 8} {
		if got := rate.BytesPerSecond(); got != want {
			t.Errorf("%v: got %d, want %d", rate, got, want)
		}
	}
}

func TestSerialisationTime(t *testing.T) {
	for _, c := range []struct {
		rate  Rate
		bytes Bytes
		want  time.Duration
	}{
		{1e9, 1500, 12 * time.Microsecond}, // 12,000 bits at one bit each nanosecond
		{10e9, 64, 52},                     // 51.2 ns, rounded up
		{0, 1500, 0},
		{1, 1, 8 * time.Second},
		{1e9, 0, 0},
		{1, math.MaxUint64, math.MaxInt64},
		{8e9, math.MaxInt64, math.MaxInt64},
		{8e9 - 1, math.MaxInt64, math.MaxInt64},
		{math.MaxUint64, math.MaxUint64, 8 * time.Second},
		{math.MaxUint64, 1, 1},
	} {
		if got := c.rate.SerialisationTime(c.bytes); got != c.want {
			t.Errorf("%v of %v: got %v, want %v", c.bytes, c.rate, got, c.want)
		}
		if made := testing.AllocsPerRun(10, func() { c.rate.SerialisationTime(c.bytes) }); made != 0 {
			t.Errorf("%v of %v: %v allocations, want none", c.bytes, c.rate, made)
		}
	}
}

// FuzzRoundTrip checks that a value which a parser accepts prints as a text with the same value,
// and that no parser hangs on a long text.
func FuzzRoundTrip(f *testing.F) {
	for _, text := range []string{"1gbit", "2.5gbit", "40KB", "16MiB", "10us", "1m30s", "0.1%", "1/3",
		"0.001", "0", "\u00b5s", strings.Repeat("9", 40) + "B"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		roundTrip[Rate](t, text)
		roundTrip[Bytes](t, text)
		roundTrip[Duration](t, text)
		roundTrip[Ratio](t, text)
		roundTrip[Factor](t, text)
		if d, err := ParseDuration(text); err == nil {
			if std, err := time.ParseDuration(text); err != nil || std != time.Duration(d) {
				t.Fatalf("%q is %v, and %v, %v for the standard library", text, d, std, err)
			}
		}
		if r, err := ParseRatio(text); err == nil {
			if r.Den == 0 || r.Num > r.Den ||
				new(big.Int).GCD(nil, nil, new(big.Int).SetUint64(r.Num),
					new(big.Int).SetUint64(r.Den)).Uint64() != 1 {
				t.Fatalf("%q is %+v, which is not a share in lowest terms", text, r)
			}
		}
	})
}

func roundTrip[T comparable, P interface {
	*T
	encoding.TextUnmarshaler
}](t *testing.T, text string) {
	var first, second T
	if P(&first).UnmarshalText([]byte(text)) != nil {
		return
	}
	printed, err := any(first).(encoding.TextMarshaler).MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := P(&second).UnmarshalText(printed); err != nil || first != second {
		t.Fatalf("%q is %v, prints as %q and reads as %v, %v", text, first, printed, second, err)
	}
}

// FuzzPrint goes the other way: every value prints as something that reads as it.
func FuzzPrint(f *testing.F) {
	f.Add(uint64(0), uint64(1))
	f.Add(uint64(math.MaxUint64), uint64(math.MaxUint64))
	f.Add(uint64(1<<40), uint64(1e15))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		if got, err := ParseRate(Rate(a).String()); err != nil || got != Rate(a) {
			t.Fatalf("rate %d: %v, %v", a, got, err)
		}
		if got, err := ParseBytes(Bytes(a).String()); err != nil || got != Bytes(a) {
			t.Fatalf("bytes %d: %v, %v", a, got, err)
		}
		d := Duration(a >> 1)
		if got, err := ParseDuration(d.String()); err != nil || got != d {
			t.Fatalf("duration %d: %v, %v", d, got, err)
		}
		if b == 0 || a > b {
			return
		}
		got, err := ParseRatio(Ratio{a, b}.String())
		if want := new(big.Rat).SetFrac(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b)); err != nil ||
			want.Cmp(new(big.Rat).SetFrac(new(big.Int).SetUint64(got.Num),
				new(big.Int).SetUint64(got.Den))) != 0 {
			t.Fatalf("ratio %d/%d: %v, %v", a, b, got, err)
		}
	})
}

func TestFactor(t *testing.T) {
	for text, want := range map[string]Factor{
		"1": {1, 1}, "0.5": {1, 2}, "8": {8, 1}, "1/3": {1, 3}, "2/4": {1, 2}, "1.5": {3, 2},
		"18446744073709551615": {math.MaxUint64, 1},
	} {
		if got, err := ParseFactor(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	refuse(t, func(s string) error {
		_, err := ParseFactor(s)
		return err
	}, "want a number above 0, as in 0.5, 8 or 1/3",
		"", "0", "0.0", "0/1", "1/0", "-1", "50%", "1e3", ".5", "1.", "x", "1/2/3", "18446744073709551616",
		"0.000000000000000000001")
	prints(t, map[string]Factor{"0": {}, "1": {1, 1}, "0.5": {1, 2}, "1/3": {1, 3}, "8": {8, 1},
		"100": {100, 1}})
	for _, c := range []struct {
		factor Factor
		bytes  Bytes
		want   Bytes
	}{
		{Factor{1, 2}, 101, 50}, {Factor{8, 1}, 1000, 8000}, {Factor{1, 3}, 10, 3}, {Factor{}, 10, 0},
		{Factor{1, 2}, 0, 0},
		{Factor{8, 1}, math.MaxUint64, math.MaxUint64},
		{Factor{math.MaxUint64, math.MaxUint64 - 1}, 1 << 40, 1 << 40},
	} {
		if got := c.factor.Times(c.bytes); got != c.want {
			t.Errorf("%v times %d: got %d, want %d", c.factor, c.bytes, got, c.want)
		}
	}
	if got := (Factor{1, 4}).Float(); got != 0.25 || (Factor{}).Float() != 0 || !(Factor{}).IsZero() {
		t.Errorf("got %v", got)
	}
}
