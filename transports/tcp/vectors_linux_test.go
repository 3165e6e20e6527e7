package tcp

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestSinkOfASmallSocket writes pieces of all lengths through a socket that takes part of
// them at a time, to somebody who reads slowly.
func TestSinkOfASmallSocket(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	to, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	from, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to.(*net.TCPConn).SetWriteBuffer(16 << 10)
	from.(*net.TCPConn).SetReadBuffer(16 << 10)

	const writes = 20
	draw := rand.New(rand.NewPCG(1, 2))
	var all []byte
	var rounds [writes][][]byte
	for i := range rounds {
		for range draw.IntN(100) {
			piece := make([]byte, draw.IntN(4)*draw.IntN(1000))
			for k := range piece {
				piece[k] = byte(draw.Uint32())
			}
			rounds[i] = append(rounds[i], piece)
			all = append(all, piece...)
		}
	}
	var total atomic.Uint64
	s, err := newSink(to.(*net.TCPConn), &total)
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer to.Close()
		for _, pieces := range rounds {
			if err := s.write(pieces...); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	from.SetReadDeadline(time.Now().Add(20 * time.Second))
	got, err := io.ReadAll(from)
	if err != nil || !bytes.Equal(got, all) || total.Load() != uint64(len(all)) {
		t.Errorf("%d bytes came, %v, and %d were counted, want the %d that were written", len(got), err,
			total.Load(), len(all))
	}
	<-written
	if err := s.write([]byte{1}); err == nil {
		t.Error("no error of a connection that is closed")
	}
}
