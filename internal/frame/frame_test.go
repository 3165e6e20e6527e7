package frame_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"

	"railbed/internal/frame"
)

// TestBytes holds the layout: a type byte, a big-endian length, the payload.
func TestBytes(t *testing.T) {
	var wire bytes.Buffer
	w := frame.NewWriter(&wire)
	if err := w.Write(frame.Stdout, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(frame.Stdin, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.WriteJSON(frame.Message, map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	want := []byte("\x02\x00\x00\x00\x02hi" + "\x01\x00\x00\x00\x00" + "\x40\x00\x00\x00\x07{\"a\":1}")
	if !bytes.Equal(wire.Bytes(), want) {
		t.Errorf("wire bytes %q, want %q", wire.Bytes(), want)
	}
}

func TestReadEnds(t *testing.T) {
	for _, test := range []struct {
		name, wire string
		want       error // nil: any error that is none of the two ends
	}{
		{"nothing", "", io.EOF},
		{"half a header", "\x02\x00", io.ErrUnexpectedEOF},
		{"no payload", "\x02\x00\x00\x00\x02", io.ErrUnexpectedEOF},
		{"half a payload", "\x02\x00\x00\x00\x02h", io.ErrUnexpectedEOF},
		{"too long", "\x02\x08\x00\x00\x01", nil},
		{"far too long", "\x02\xff\xff\xff\xff", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := frame.NewReader(bytes.NewReader([]byte(test.wire))).Read()
			switch {
			case err == nil:
				t.Error("reads")
			case test.want != nil && !errors.Is(err, test.want):
				t.Errorf("error %v, want %v", err, test.want)
			case test.want == nil && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
				t.Errorf("error %v, want one about the length", err)
			}
		})
	}
	if err := frame.NewWriter(io.Discard).Write(frame.Stdin, make([]byte, frame.MaxPayload+1)); err == nil {
		t.Error("a payload over the limit is written")
	}
}

// A peer that announces the longest frame and sends little of it costs little memory.
func TestAnnouncedLengthAllocatesNothing(t *testing.T) {
	for _, sent := range []int{0, 10, 100 << 10} {
		wire := append([]byte{byte(frame.Stdout), 0x08, 0, 0, 0}, make([]byte, sent)...) // frame.MaxPayload
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := frame.NewReader(bytes.NewReader(wire)).Read()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: error %v, want io.ErrUnexpectedEOF", sent, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("after %d of %d bytes the reader has allocated %d", sent, frame.MaxPayload, took)
		}
	}
}

// A payload of many pieces arrives whole, and a shorter one after it is not longer.
func TestLongPayload(t *testing.T) {
	long := make([]byte, 3<<20+7)
	for i := range long {
		long[i] = byte(i * 7 >> 3)
	}
	var wire bytes.Buffer
	w := frame.NewWriter(&wire)
	payloads := [][]byte{long, []byte("short"), nil, long[:70<<10]}
	for _, payload := range payloads {
		if err := w.Write(frame.Stdout, payload); err != nil {
			t.Fatal(err)
		}
	}
	r := frame.NewReader(iotest.OneByteReader(&wire))
	for i, want := range payloads {
		if _, got, err := r.Read(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("payload %d: %d bytes, error %v, want %d bytes as they were sent", i, len(got), err,
				len(want))
		}
	}
}

// TestConcurrentWriters: frames of several writers never mix.
func TestConcurrentWriters(t *testing.T) {
	const writers, each = 8, 200
	reader, writer := io.Pipe()
	w := frame.NewWriter(writer)
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			payload := bytes.Repeat([]byte{byte(i)}, 100+i)
			for range each {
				if err := w.Write(frame.Type(100+i), payload); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		group.Wait()
		writer.Close()
	}()
	counts := make(map[frame.Type]int)
	r := frame.NewReader(reader)
	for {
		kind, payload, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		i := byte(kind) - 100
		if !bytes.Equal(payload, bytes.Repeat([]byte{i}, 100+int(i))) {
			t.Fatalf("frame of type %d carries another writer's bytes", kind)
		}
		counts[kind]++
	}
	for i := range writers {
		if counts[frame.Type(100+i)] != each {
			t.Errorf("writer %d: %d frames arrived, want %d", i, counts[frame.Type(100+i)], each)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x02hi"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := frame.NewReader(bytes.NewReader(wire))
		var again bytes.Buffer
		w := frame.NewWriter(&again)
		for {
			kind, payload, err := r.Read()
			if err != nil {
				break
			}
			if err := w.Write(kind, payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(wire, again.Bytes()) {
			t.Errorf("read and written again: %q is no beginning of %q", again.Bytes(), wire)
		}
	})
}
