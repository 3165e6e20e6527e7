package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"railbed/testkit/protocoltest"
)

// The examples of PROTOCOL.md, in the words that stand around them.
func TestAggregationExamples(t *testing.T) {
	update := AggregationFields{
		Kind:   AggregationUpdate,
		Flags:  AggregationSet,
		Type:   AggregationFixed,
		Job:    5,
		Epoch:  2,
		Slot:   3,
		Worker: 1,
		FanIn:  4,
		Key:    0xc0ffee42, Round: 7, Offset: 1024, Bitmap: 0b10, Elements: 4, Scale: -20, NextScale: -19,
	}
	result := update
	result.Kind, result.Flags, result.Bitmap, result.NextScale = AggregationResult,
		AggregationSet|AggregationSaturated, 0b1111, -18
	partial := update
	partial.Kind, partial.Worker, partial.Bitmap, partial.Key, partial.NextScale = AggregationPartial, 1,
		0b1010, 0x0badcafe, -18
	reject := update
	reject.Kind, reject.Code, reject.Epoch, reject.Bitmap = AggregationReject, AggregationEpochOld, 4, 0
	reject.Elements, reject.Scale, reject.NextScale = 0, 0, 0
	for _, test := range []struct {
		name     string
		fields   AggregationFields
		elements []int32
	}{
		{"update", update, []int32{1 << 20, -1 << 19, 0, math.MaxInt32}},
		{"result", result, []int32{1 << 22, -1 << 21, 1, math.MaxInt32}},
		{"partial", partial, []int32{1 << 21, -1 << 20, 0, math.MaxInt32}},
		{"reject", reject, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := protocoltest.Example(t, "aggregation-"+test.name)
			a := Aggregation(b)
			cut(t, a, AggregationMessageLen(AggregationFixed, len(test.elements)), Aggregation.Valid)
			equal(t, "longer", Aggregation(append(bytes.Clone(b), 0, 0, 0, 0)).Valid(), false)
			equal(t, "fields", a.Fields(), test.fields)
			equal(t, "set", a.Set(), 1)
			equal(t, "version", a.Version(), 3)
			made := make([]byte, len(b))
			Aggregation(made).Encode(&test.fields)
			for i, want := range test.elements {
				equal(t, "element", a.Fixed(i), want)
				Aggregation(made).SetFixed(i, want)
			}
			if !bytes.Equal(made, b) {
				t.Errorf("encoded % x", made)
			}
			equal(t, "bytes of elements", len(a.Data()), 4*len(test.elements))
		})
	}
}

// The example of an operation other than a sum, with elements of 2 bytes. Worker 2 of 4 has 1,
// -1/2, -0 and infinity as bfloat16, which are the upper halves of these as float32.
func TestAggregationOperation(t *testing.T) {
	want := AggregationFields{
		Kind:   AggregationUpdate,
		Type:   AggregationBFloat16,
		Op:     AggregationMax,
		Job:    5,
		Epoch:  2,
		Slot:   4,
		Worker: 2,
		FanIn:  4,
		Key:    0x600dcafe, Round: 8, Offset: 2048, Bitmap: 0b100, Elements: 4,
	}
	b := protocoltest.Example(t, "aggregation-max")
	a := Aggregation(b)
	cut(t, a, 36+8, Aggregation.Valid)
	equal(t, "fields", a.Fields(), want)
	made := make([]byte, len(b))
	Aggregation(made).Encode(&want)
	for i, value := range []float32{1, -0.5, float32(math.Copysign(0, -1)), float32(math.Inf(1))} {
		binary.BigEndian.PutUint16(Aggregation(made).Data()[2*i:], uint16(math.Float32bits(value)>>16))
	}
	if !bytes.Equal(made, b) {
		t.Errorf("encoded % x", made)
	}
}

func TestAggregationInvalid(t *testing.T) {
	for _, test := range []struct {
		name, of string
		at       int
		value    byte
	}{
		{"version", "update", 0, 0x11},
		{"kind", "update", 0, 0x35},
		{"unknown flag", "update", 1, 0x09},
		{"set of another round", "update", 1, 0x00},
		{"type", "reject", 2, 0x06},
		{"operation", "max", 2, 0x34},
		{"greatest of fixed point", "update", 2, 0x12},
		{"shorter elements", "max", 2, 0x11},
		{"no type", "update", 2, 0x00},
		{"code in an update", "update", 3, 0x01},
		{"worker beyond the fan-in", "update", 10, 4},
		{"result for a worker beyond the fan-in", "result", 10, 4},
		{"no fan-in", "update", 11, 0},
		{"fan-in over 64", "update", 11, 65},
		{"another worker's bit", "update", 31, 0x01},
		{"two bits", "update", 31, 0x03},
		{"bit beyond the fan-in", "result", 31, 0x1f},
		{"high bit", "result", 24, 0x80},
		{"no bit", "result", 31, 0},
		{"partial sum of a worker that is not called by the least", "partial", 10, 3},
		{"partial sum called by who is not in it", "partial", 10, 0},
		{"partial sum of nobody", "partial", 31, 0},
		{"code in a partial sum", "partial", 3, 1},
		{"more elements", "update", 33, 5},
		{"fewer elements", "update", 33, 3},
		{"no element", "update", 33, 0},
		{"elements in a reject", "reject", 33, 1},
		{"reject without code", "reject", 3, 0},
	} {
		b := protocoltest.Example(t, "aggregation-"+test.of)
		b[test.at] = test.value
		equal(t, test.name, Aggregation(b).Valid(), false)
	}
	// With 64 workers every bit is allowed.
	b := protocoltest.Example(t, "aggregation-result")
	b[11] = 64
	for i := range 8 {
		b[24+i] = 0xff
	}
	equal(t, "64 workers", Aggregation(b).Valid(), true)
}

// Whatever its flags, a message belongs to the set of its round.
func TestAggregationSet(t *testing.T) {
	a := Aggregation(make([]byte, AggregationLen))
	a.Encode(&AggregationFields{Flags: AggregationRepeat, Round: 7})
	equal(t, "flags", a.Flags(), AggregationRepeat|AggregationSet)
	a.Encode(&AggregationFields{Flags: AggregationSet, Round: 8})
	equal(t, "flags", a.Flags(), 0)
}

// The result of Python's hashlib for the bytes in PROTOCOL.md.
func TestAggregationKey(t *testing.T) {
	equal(t, "key", AggregationKey(0x0123456789abcdef, 5, 2, 1), 0xdfc3b519)
	equal(t, "key", AggregationKey(0, 0, 0, 0), 0x23510dd0)
	equal(t, "key", AggregationKey(math.MaxUint64, math.MaxUint16, math.MaxUint16, 63), 0xcb4989ce)
}

// IEEE 754: 1.5 is 3fc00000, minus infinity ff800000.
func TestAggregationFloat(t *testing.T) {
	a := Aggregation(make([]byte, AggregationMessageLen(AggregationFloat32, 2)))
	a.SetFloat(0, 1.5)
	a.SetFloat(1, float32(math.Inf(-1)))
	if want := sample(t, "3fc00000 ff800000"); !bytes.Equal(a.Data(), want) {
		t.Errorf("elements % x", a.Data())
	}
	equal(t, "element", a.Float(0), 1.5)
}

func TestFixed(t *testing.T) {
	for _, test := range []struct {
		v     float32
		scale int8
		want  int32
		ok    bool
	}{
		{1, -20, 1 << 20, true},
		{-0.5, -20, -1 << 19, true},
		{2.5, 0, 2, true}, // to even
		{3.5, 0, 4, true},
		{1 << 31, 0, math.MaxInt32, false},
		{-1 << 31, 0, math.MinInt32, true},
		{-1 << 32, 0, math.MinInt32, false},
		{1 << 31, 1, 1 << 30, true},
		{float32(math.Inf(1)), 100, math.MaxInt32, false},
		{float32(math.NaN()), 0, 0, false},
	} {
		got, ok := ToFixed(test.v, test.scale)
		if got != test.want || ok != test.ok {
			t.Errorf("%v at scale %d is %d, %v; want %d, %v", test.v, test.scale, got, ok, test.want, test.ok)
		}
	}
	equal(t, "back", FromFixed(-1<<19, -20), -0.5)
}

// The promise of ScaleFor, on the worst sums: every worker at the limit.
func TestScaleFor(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for range 20000 {
		limit := math.Float32frombits(draw.Uint32() & 0x7fffffff)
		if math.IsNaN(float64(limit)) || math.IsInf(float64(limit), 0) {
			continue
		}
		fanIn := 1 + draw.IntN(AggregationMaxFanIn)
		scale := ScaleFor(limit, fanIn)
		one, ok := ToFixed(limit, scale)
		if sum := int64(one) * int64(fanIn); !ok || sum > math.MaxInt32 || -sum < math.MinInt32 {
			t.Fatalf("%v times %d at scale %d is %d", limit, fanIn, scale, sum)
		}
		// Two below would not do: a number of fewer than 64 workers costs at
		// most one bit.
		if scale > math.MinInt8+1 {
			tight, ok := ToFixed(limit, scale-2)
			if sum := int64(tight) * int64(fanIn); ok && sum <= math.MaxInt32 {
				t.Fatalf("%v times %d needs no scale %d", limit, fanIn, scale)
			}
		}
	}
	equal(t, "zero", ScaleFor(0, 1) < 0, true)
}

func TestAggregationCodeNames(t *testing.T) {
	for c := range AggregationCodes {
		if name := AggregationCode(c).String(); name == "" || name == "unknown" {
			t.Errorf("code %d is named %q", c, name)
		}
	}
	equal(t, "beyond", AggregationCode(AggregationCodes).String(), "unknown")
}
