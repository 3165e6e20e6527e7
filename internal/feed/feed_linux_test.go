package feed

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// pair is both ends of a feed.
func pair(t testing.TB, size int) (*Writer, *Reader) {
	t.Helper()
	file, err := Create(size)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w, err := NewWriter(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); r.Close() })
	return w, r
}

// content returns a record with contents made from its number.
func content(n int) Record {
	return Record{
		Time:    int64(n),
		Late:    int64(-n),
		Depth:   int64(3 * n),
		Serial:  uint64(n) << 40,
		Length:  n + 5,
		Tap:     uint16(n % 7),
		Event:   Event(n % 5),
		Verdict: Verdict(n % 6),
		Reason:  uint8(n), Queue: uint8(n % 8), Data: bytes.Repeat([]byte{byte(n)}, n%301),
	}
}

// TestEveryRecordArrivesOrIsCounted writes and reads at random speeds on two
// threads: each record arrives whole, in order, or is counted as lost just where
// it is missing.
func TestEveryRecordArrivesOrIsCounted(t *testing.T) {
	const records = 200_000
	w, r := pair(t, 16<<10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := range records {
			record := content(n)
			w.Write(&record)
		}
	}()
	next := map[uint16]int{}
	for tap := range 7 {
		next[uint16(tap)] = tap
	}
	read, random := 0, rand.New(rand.NewPCG(1, 2))
	check := func(got *Record) {
		want := next[got.Tap] + 7*int(got.Lost)
		expected := content(want)
		if got.Time != int64(want) || got.Late != expected.Late || got.Depth != expected.Depth ||
			got.Serial != expected.Serial || got.Length != expected.Length ||
			got.Event != expected.Event || got.Verdict != expected.Verdict || got.Reason != expected.Reason ||
			got.Queue != expected.Queue || !bytes.Equal(got.Data, expected.Data) {
			t.Errorf("tap %d: record %d with %d lost before, want number %d", got.Tap, got.Time, got.Lost,
				want)
		}
		next[got.Tap] = want + 7
		read++
	}
	for ended := false; !t.Failed(); {
		count, err := r.Read(1+random.IntN(50), check)
		if err != nil {
			t.Fatal(err)
		}
		if count > 0 {
			continue
		}
		if ended {
			break
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	lost := uint64(0)
	for tap := range uint16(7) {
		lost += r.Lost(tap)
	}
	if read+int(lost) != records || lost == 0 || read == 0 {
		t.Fatalf("%d records read and %d lost of %d; want both, and all of them", read, lost, records)
	}
}

// TestBrokenWriter is a writer that lies: an error, no panic, no endless loop.
func TestBrokenWriter(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		w, r := pair(t, 4096)
		for n := range 20 {
			record := content(n)
			w.Write(&record)
		}
		for range 1 + random.IntN(4) {
			w.memory[ringAt+random.IntN(2000)] = byte(random.Uint32())
		}
		if random.IntN(4) == 0 {
			w.counter(headAt).Store(random.Uint64())
		}
		_, _ = r.Read(1<<20, func(*Record) {})
		w.Close()
		r.Close()
	}
}

func BenchmarkWriteAndRead(b *testing.B) {
	w, r := pair(b, 1<<20)
	record := content(256)
	b.ReportAllocs()
	for b.Loop() {
		w.Write(&record)
		if _, err := r.Read(1, func(*Record) {}); err != nil {
			b.Fatal(err)
		}
	}
}
