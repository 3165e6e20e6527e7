package units

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
)

// Offset is a signed time in nanoseconds, by which a clock is ahead.
type Offset time.Duration

// Drift is the relative error of a clock's rate in parts per billion. A clock with a positive drift is fast.
type Drift int64

// signed splits a sign off.
func signed(text string) (rest string, sign int64) {
	if rest, is := strings.CutPrefix(text, "-"); is {
		return rest, -1
	}
	return strings.TrimPrefix(text, "+"), 1
}

// parseOffset parses a duration with an optional sign: "10s", "+10s" or "-1.5s".
func parseOffset(text string) (Offset, error) {
	rest, sign := signed(text)
	d, err := ParseDuration(rest)
	if err != nil {
		return 0, fmt.Errorf("time %q: want a number with ns, us, ms, s, m or h, as in 10s or -10s", text)
	}
	return Offset(sign * int64(d)), nil
}

// String returns the time as in a file.
func (o Offset) String() string {
	if o < 0 {
		return "-" + Duration(-o).String()
	}
	return Duration(o).String()
}

// MarshalText implements encoding.TextMarshaler.
func (o Offset) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Form describes the values in files.
func (Offset) Form() string { return "a time such as 10s or -10s" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (o *Offset) UnmarshalText(text []byte) (err error) {
	*o, err = parseOffset(string(text))
	return err
}

// parseDrift parses "100ppm", "-0.5ppm" or "20ppb". It parses exactly: 0.5ppb is refused, not rounded to 0.
func parseDrift(text string) (Drift, error) {
	bad := fmt.Errorf("drift %q: want parts per million or billion, as in 100ppm or -20ppb", text)
	rest, sign := signed(text)
	scale := int64(1)
	number, is := strings.CutSuffix(rest, "ppb")
	if !is {
		if number, is = strings.CutSuffix(rest, "ppm"); !is {
			return 0, bad
		}
		scale = 1000
	}
	value, ok := decimal(number)
	if !ok {
		return 0, bad
	}
	value.Mul(value, big.NewRat(scale, 1))
	if !value.IsInt() || !value.Num().IsInt64() || value.Num().Int64() == math.MaxInt64 {
		return 0, bad
	}
	return Drift(sign * value.Num().Int64()), nil
}

// String returns the drift as in a file.
func (d Drift) String() string {
	if d%1000 == 0 {
		return fmt.Sprintf("%dppm", int64(d)/1000)
	}
	return fmt.Sprintf("%dppb", int64(d))
}

// MarshalText implements encoding.TextMarshaler.
func (d Drift) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Form describes the values in files.
func (Drift) Form() string { return "a drift such as 100ppm or -100ppm" }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Drift) UnmarshalText(text []byte) (err error) {
	*d, err = parseDrift(string(text))
	return err
}
