package privacy

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"railbed/internal/clock"
	"railbed/internal/wire"
	"railbed/testkit/hosttest"
	"railbed/testkit/protocoltest"
)

func TestMain(m *testing.M) { os.Exit(hosttest.Main(m)) }

// The lives and engines of the document's examples.
var exampleWay = Direction{From: 0x0123456789ABCDEF, To: 0xFEDCBA9876543210, Source: 0x11, Destination: 3}

func exampleSecret(t testing.TB) *Secret {
	t.Helper()
	b := make([]byte, SecretLen)
	for i := range b {
		b[i] = byte(i)
	}
	s, err := New(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSealedExamples holds the bytes of the document, which OpenSSL made, in both
// directions.
func TestSealedExamples(t *testing.T) {
	for _, c := range []struct {
		name, plain string
		readable    bool
		f           wire.RDSecurity
	}{
		{"rd-sealed", "rd-data", false, wire.RDSecurity{Heard: 1, Epoch: 2, Counter: 7}},
		{"rd-readable", "rd-data", true, wire.RDSecurity{Readable: 10, Heard: 1, Epoch: 2, Counter: 8}},
		{"rd-sealed-probe", "rd-probe", false, wire.RDSecurity{}},
	} {
		b, plain := wire.RD(protocoltest.Example(t, c.name)), wire.RD(protocoltest.Example(t, c.plain))
		if !b.Valid() || b.SealedTrimmed() || b.Security() != c.f {
			t.Errorf("%s: valid %v, cut %v, %+v", c.name, b.Valid(), b.SealedTrimmed(), b.Security())
		}
		s := NewSealer(exampleSecret(t), exampleWay, Limits{})
		s.epoch, s.counter, s.crypt = c.f.Epoch, c.f.Counter, newCryptor(s.secret.Key(exampleWay, c.f.Epoch))
		header := wire.RDHeaderLen(plain.Type())
		made, err := s.Seal(make([]byte, 200), plain[:header], plain[header:], c.readable, c.f.Heard, 1)
		if err != nil || !bytes.Equal(made, b) {
			t.Errorf("%s: sealed %x, %v, want %x", c.name, []byte(made), err, []byte(b))
		}
		o := NewOpener(exampleSecret(t), exampleWay, Limits{})
		o.current = o.epoch(c.f.Epoch)
		opened, what := o.Open(b, 1)
		if what != Opened {
			t.Fatalf("%s: %v", c.name, what)
		}
		if opened.Recheck(); !bytes.Equal(opened, plain) {
			t.Errorf("%s: opened %x, want %x", c.name, []byte(opened), []byte(plain))
		}
	}
}

// TestKey holds that a key is of one secret, pair, direction and epoch.
func TestKey(t *testing.T) {
	s, d := exampleSecret(t), exampleWay
	if key := s.Key(d, 2); hex.EncodeToString(key.AES[:4]) != "82e6f454" ||
		hex.EncodeToString(key.IV[:]) != "1bcb95e98f36a259e6fc4b96" {
		t.Errorf("key %x, IV %x", key.AES, key.IV) // as Python's cryptography has it
	}
	other, err := New(Generate())
	if err != nil {
		t.Fatal(err)
	}
	keys := []Key{s.Key(d, 0), s.Key(d, 1), s.Key(d.Back(), 0), other.Key(d, 0)}
	for _, change := range []func(*Direction){
		func(d *Direction) { d.From++ }, func(d *Direction) { d.To++ }, func(d *Direction) { d.Source++ },
		func(d *Direction) { d.Destination++ },
	} {
		d := d
		change(&d)
		keys = append(keys, s.Key(d, 0))
	}
	for i := range keys {
		for _, k := range keys[:i] {
			if keys[i].AES == k.AES || keys[i].IV == k.IV {
				t.Errorf("key %d is there twice", i)
			}
		}
	}
	if _, err := New(make([]byte, SecretLen-1)); err == nil {
		t.Error("a short secret was taken")
	}
}

// TestSecretIsNotPrinted holds that nothing that prints shows a secret.
func TestSecretIsNotPrinted(t *testing.T) {
	s := exampleSecret(t)
	m := Material(bytes.Clone(s.root[:]))
	var text strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t"} {
		fmt.Fprintf(&text, verb+verb+verb, s, struct{ S *Secret }{s}, []*Secret{s})
		fmt.Fprintf(&text, verb+verb+verb, m, struct{ M Material }{m}, &struct{ M Material }{m})
	}
	slog.New(slog.NewTextHandler(&text, nil)).Info("opened", "secret", s, "all", struct{ S *Secret }{s})
	slog.New(slog.NewJSONHandler(&text, nil)).Info("opened", "secret", s, "material", m)
	if err := json.NewEncoder(&text).Encode(struct{ S *Secret }{s}); err != nil {
		t.Error(err)
	}
	// fmt.Sprint of the bytes in any of the ways above.
	for _, shown := range []string{fmt.Sprint(s.root[:4]), fmt.Sprintf("%x", s.root[:4]),
		fmt.Sprintf("%X", s.root[:4]), fmt.Sprintf("%d, %d", s.root[0], s.root[1]), string(s.root[:4])} {
		if strings.Contains(text.String(), strings.Trim(shown, "[]")) {
			t.Errorf("it is printed: %s", text.String())
		}
	}
	if strings.Count(text.String(), hidden) < 9 {
		t.Errorf("not said to be a secret: %s", text.String())
	}
	if err := s.UnmarshalText([]byte(hidden)); err == nil {
		t.Error("it was read")
	}
}

// probe is a plain packet to seal.
func probe(t testing.TB) wire.RD {
	b := make(wire.RD, wire.RDProbeLen)
	b.EncodeProbe(wire.RDBase{Source: exampleWay.Source, Destination: exampleWay.Destination, Tag: 0x76543210,
		Life: exampleWay.From, PSN: 9}, 5)
	if !b.Valid() {
		t.Fatal("the packet is not valid")
	}
	return b
}

// ends are both ends of a direction, and what one says to the other.
type ends struct {
	testing.TB
	seal *Sealer
	open *Opener
	now  clock.Time
}

func newEnds(t testing.TB, l Limits) *ends {
	return &ends{TB: t, seal: NewSealer(exampleSecret(t), exampleWay, l),
		open: NewOpener(exampleSecret(t), exampleWay, l), now: 1}
}

func (e *ends) packet() wire.RD {
	e.Helper()
	b, err := e.seal.Seal(make([]byte, 100), probe(e), nil, false, 0, e.now)
	if err != nil {
		e.Fatal(err)
	}
	return b
}

func (e *ends) opens(b wire.RD) Outcome {
	_, what := e.open.Open(bytes.Clone(b), e.now)
	return what
}

// TestTampered holds that a packet with any bit changed, or any byte missing or
// more, is not opened, and that it is afterwards as it was.
func TestTampered(t *testing.T) {
	plain := wire.RD(protocoltest.Example(t, "rd-data"))
	for _, readable := range []bool{false, true} {
		e := newEnds(t, Limits{})
		b, err := e.seal.Seal(make([]byte, 200), plain[:wire.RDDataLen], plain[wire.RDDataLen:], readable, 0,
			1)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * len(b) {
			b[bit/8] ^= 1 << (bit % 8)
			if what := e.opens(b); what == Opened {
				t.Errorf("opened with bit %d changed", bit)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for n := range b {
			if e.opens(b[:n]) == Opened {
				t.Errorf("opened the first %d of %d bytes", n, len(b))
			}
		}
		if e.opens(append(bytes.Clone(b), 0)) == Opened {
			t.Error("opened with a byte more")
		}
		if what := e.opens(b); what != Opened {
			t.Errorf("after all that: %d", what)
		}
	}
}

// TestNonces holds that no nonce comes twice with a key.
func TestNonces(t *testing.T) {
	e := newEnds(t, Limits{Packets: 10, Age: time.Hour})
	seen := make(map[string]bool)
	for range 1000 {
		b := e.packet()
		f := b.Security()
		nonce := fmt.Sprintf("%x %x", e.seal.secret.Key(exampleWay, f.Epoch).AES, e.seal.crypt.nonce)
		if seen[nonce] {
			t.Fatalf("%+v: a nonce twice", f)
		}
		seen[nonce] = true
		e.seal.Confirm(uint8(f.Epoch))
	}
	if e.seal.Epoch() != 99 {
		t.Errorf("epoch %d", e.seal.Epoch())
	}
}

// TestRotation holds when a key is left, and for how long the one before is taken.
func TestRotation(t *testing.T) {
	e := newEnds(t, Limits{Packets: 10, Age: time.Minute, Overlap: time.Second})
	var old []wire.RD
	for range 10 {
		old = append(old, e.packet())
	}
	if b := e.packet(); b.Security().Epoch != 0 || e.opens(b) != Opened {
		t.Fatalf("%+v: left before the peer had a packet", b.Security())
	}
	e.seal.Confirm(7) // of some other epoch
	if b := e.packet(); b.Security().Epoch != 0 {
		t.Fatalf("%+v", b.Security())
	}
	e.seal.Confirm(0)
	b := e.packet()
	if b.Security() != (wire.RDSecurity{Epoch: 1}) {
		t.Fatalf("%+v: not left", b.Security())
	}
	if e.opens(old[0]) != Opened || e.opens(b) != Opened || e.opens(b) != Replayed {
		t.Error("the new epoch is not opened")
	}
	if any, heard := e.open.Heard(); !any || heard != 1 {
		t.Errorf("heard %v %d", any, heard)
	}
	e.now = e.now.Add(time.Second - 1)
	if e.opens(old[1]) != Opened || e.opens(old[1]) != Replayed {
		t.Error("the old epoch is not opened for its second")
	}
	e.now++
	if e.opens(old[2]) != Stale {
		t.Error("the old epoch is still opened")
	}
	// By age, and no two at once.
	e.seal.Confirm(1)
	e.now = e.now.Add(time.Minute)
	b = e.packet()
	e.seal.Confirm(2)
	e.now = e.now.Add(time.Minute)
	far := e.packet()
	if b.Security().Epoch != 2 || far.Security().Epoch != 3 || e.opens(far) != Stale ||
		e.opens(b) != Opened || e.opens(far) != Opened {
		t.Errorf("%+v, %+v", b.Security(), far.Security())
	}
}

// TestDefaults checks that the limits match section 9 of the document.
func TestDefaults(t *testing.T) {
	document, err := os.ReadFile("../PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	if l := (Limits{}).withDefaults(); l != (Limits{Packets: 1 << 22, Age: 10 * time.Minute,
		Overlap: time.Second, Most: 1 << 32}) || Window != 4096 {
		t.Errorf("%+v, a window of %d", l, Window)
	}
	for _, row := range []string{"2^22 packets, 10 min | of a key |", "2^32 packets | of a key whose",
		"1 s | for which packets of the previous epoch are opened", "4,096 | counters"} {
		if !bytes.Contains(document, []byte("\n| "+row)) {
			t.Errorf("the document has no row %q", row)
		}
	}
}

// TestUsedUp holds that a key seals no more than it may, and that there is no epoch
// behind the last.
func TestUsedUp(t *testing.T) {
	e := newEnds(t, Limits{Packets: 3, Most: 5})
	for range 5 {
		e.packet()
	}
	if _, err := e.seal.Seal(make([]byte, 100), probe(t), nil, false, 0, e.now); !errors.Is(err, errUsedUp) {
		t.Errorf("%v", err)
	}
	e = newEnds(t, Limits{Packets: 3, Most: 5})
	e.seal.epoch, e.seal.confirmed, e.seal.counter = 1<<16-1, true, 4
	e.seal.crypt = newCryptor(e.seal.secret.Key(exampleWay, 1<<16-1))
	e.open.current, e.open.next = e.open.epoch(1<<16-2), e.open.epoch(1<<16-1)
	if b := e.packet(); b.Security().Epoch != 1<<16-1 || e.opens(b) != Opened || e.open.next != nil {
		t.Errorf("%+v", b.Security())
	}
	if _, err := e.seal.Seal(make([]byte, 100), probe(t), nil, false, 0, e.now); !errors.Is(err, errUsedUp) {
		t.Errorf("behind the last epoch: %v", err)
	}
}

// TestWindow holds the window against a set that forgets nothing.
func TestWindow(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w window
		came := make(map[uint64]bool)
		highest, spread := uint64(0), []int{10, 200, 3000, 20_000}[seed%4]
		for i := range 20_000 {
			n := highest + uint64(r.IntN(spread))
			if back := uint64(r.IntN(2 * spread)); n > back {
				n -= back
			}
			if r.IntN(2000) == 0 {
				n += 1 << 40
			}
			want := came[n] || highest >= n && highest-n >= Window
			if got := w.has(n); got != want {
				t.Fatalf("seed %d, step %d: %d behind %d: %v, want %v", seed, i, n, highest, got, want)
			}
			if !want && r.IntN(3) > 0 {
				w.add(n)
				came[n] = true
				highest = max(highest, n)
			}
		}
	}
	var w window
	if w.add(0); !w.has(0) || w.has(1) || !w.has(1<<64-1) {
		t.Error("the ends are wrong")
	}
	if w.add(1<<64 - 2); !w.has(1<<64-2) || !w.has(0) || w.has(1<<64-3) {
		t.Error("the last is wrong")
	}
}

// FuzzOpen holds that nothing opens but what was sealed, and that once, and that
// no bytes make it read or write past their end.
func FuzzOpen(f *testing.F) {
	for _, name := range []string{"rd-sealed", "rd-readable", "rd-sealed-probe"} {
		f.Add(protocoltest.Example(f, name), uint16(0))
	}
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		secret, err := New(bytes.Repeat([]byte{7}, SecretLen)) // not that of the examples
		if err != nil {
			t.Fatal(err)
		}
		e := &ends{TB: t, seal: NewSealer(secret, exampleWay, Limits{}),
			open: NewOpener(secret, exampleWay, Limits{}), now: 1}
		genuine := e.packet()
		forged := append(bytes.Clone(data), 0xA5)
		b := wire.RD(forged[:len(data):len(data)])
		if b.HasBase() {
			b.SealedTrimmed()
			if plain, what := e.open.Open(b, e.now); what == Opened {
				t.Fatalf("opened %x as %x", data, []byte(plain))
			}
		}
		if forged[len(data)] != 0xA5 {
			t.Fatal("a byte behind it was written")
		}
		changed := bytes.Clone(genuine)
		if n := int(at) % len(genuine); n+len(data) <= len(changed) {
			copy(changed[n:], data)
		}
		if !bytes.Equal(changed, genuine) && e.opens(changed) == Opened {
			t.Fatalf("opened %x", changed)
		}
		if e.opens(genuine) != Opened || e.opens(genuine) != Replayed {
			t.Fatal("the genuine one is not opened once")
		}
	})
}

// BenchmarkSeal seals and opens packets of 4 KiB of payload.
func BenchmarkSeal(b *testing.B) {
	e := newEnds(b, Limits{})
	header, payload := make(wire.RD, wire.RDDataLen), make([]byte, 4096)
	header.EncodeData(wire.RDBase{Length: 4096}, &wire.RDDataFields{})
	memory := make([]byte, 5000)
	b.SetBytes(4096)
	b.ReportAllocs()
	for b.Loop() {
		packet, err := e.seal.Seal(memory, header, payload, false, 0, 1)
		if err != nil {
			b.Fatal(err)
		}
		if _, what := e.open.Open(packet, 1); what != Opened {
			b.Fatal(what)
		}
	}
}
