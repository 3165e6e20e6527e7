package privacy

import (
	"bytes"
	"strings"
	"testing"

	"railbed/internal/wire"
	"railbed/testkit/protocoltest"
)

// exampleLog opens the document's examples.
func exampleLog(t testing.TB) *KeyLog {
	t.Helper()
	var text bytes.Buffer
	b := make(Material, SecretLen)
	for i := range b {
		b[i] = byte(i)
	}
	if err := WriteKeyLog(&text, b, []uint64{exampleWay.From, exampleWay.To}); err != nil {
		t.Fatal(err)
	}
	l, err := ReadKeyLog(strings.NewReader("# somebody's\n\nCLIENT_RANDOM 1 2\n" + text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestKeyLog holds that a log that was written opens what it is of, in any order and
// as often as one likes, and nothing else.
func TestKeyLog(t *testing.T) {
	l := exampleLog(t)
	for sealed, plain := range map[string]string{"rd-sealed": "rd-data", "rd-readable": "rd-data",
		"rd-sealed-probe": "rd-probe"} {
		b, want := wire.RD(protocoltest.Example(t, sealed)), protocoltest.Example(t, plain)
		for range 2 {
			got, ok := l.Open(b)
			if !ok || !bytes.Equal(got, want) || !got.Valid() {
				t.Errorf("%s: %x, %v", sealed, []byte(got), ok)
			}
		}
		for bit := range 8 * len(b) {
			b[bit/8] ^= 1 << (bit % 8)
			if _, ok := l.Open(b); ok {
				t.Errorf("%s: opened with bit %d changed", sealed, bit)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for n := range b {
			if _, ok := l.Open(b[:n]); ok {
				t.Errorf("%s: opened %d bytes of it", sealed, n)
			}
		}
	}
	// Without one of the lives, or with another secret.
	other := NewKeyLog()
	for _, add := range []error{other.Add(Generate(), []uint64{exampleWay.From, exampleWay.To}),
		other.Add(bytes.Repeat([]byte{1}, SecretLen), []uint64{exampleWay.From})} {
		if add != nil {
			t.Fatal(add)
		}
	}
	if _, ok := other.Open(protocoltest.Example(t, "rd-sealed")); ok {
		t.Error("opened with another secret")
	}
	if err := other.Add(nil, nil); err == nil {
		t.Error("no secret was taken")
	}
	for _, text := range []string{"", "RD_LIFE 0123456789abcdef", "RD_SECRET 00",
		"RD_SECRET " + strings.Repeat("g", 64), "RD_SECRET " + strings.Repeat("00", 32) + "\nRD_LIFE x"} {
		if _, err := ReadKeyLog(strings.NewReader(text)); err == nil ||
			strings.Contains(err.Error(), "gggg") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzKeyLog holds that no text makes reading a log fail otherwise than by an error, and that
// what is read of one is bounded.
func FuzzKeyLog(f *testing.F) {
	f.Add("RD_SECRET "+strings.Repeat("00", 32)+"\nRD_LIFE 0123456789abcdef\n", []byte{0x91, 0x80})
	f.Add("", protocoltest.Example(f, "rd-sealed"))
	f.Fuzz(func(t *testing.T, text string, data []byte) {
		l, err := ReadKeyLog(strings.NewReader(text))
		if err != nil {
			l = exampleLog(t)
		} else if l.count > strings.Count(text, lifeLine) {
			t.Fatalf("%d lives of %q", l.count, text)
		}
		before := bytes.Clone(data)
		if b := wire.RD(data); b.HasBase() {
			if plain, ok := l.Open(b); ok && (!plain.Valid() || len(plain) != len(b)-wire.RDSealedLen) {
				t.Fatalf("opened %x as %x", data, []byte(plain))
			}
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the packet was changed")
		}
	})
}
