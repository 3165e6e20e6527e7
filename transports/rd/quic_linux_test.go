package rd

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"math/big"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/sync/errgroup"
)

const quicPort = ":9443"

// quicConfig are windows that hold nothing back.
var quicConfig = &quic.Config{
	InitialStreamReceiveWindow: 16 << 20, MaxStreamReceiveWindow: 64 << 20,
	InitialConnectionReceiveWindow: 16 << 20, MaxConnectionReceiveWindow: 64 << 20,
}

// quicTLS makes a self-signed certificate, which the peer does not check.
func quicTLS() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:         []string{"versus"},
		InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
	}, nil
}

// quicNear has a connection and a stream to each peer: bytes per second that were
// read there, or quantiles of round trips.
func (o part) quicNear(in *bufio.Reader, out io.Writer) ([]float64, error) {
	config, err := quicTLS()
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "near")
	var streams []*quic.Stream
	for range o.Peers {
		if _, err := in.ReadString('\n'); err != nil {
			return nil, err
		}
		conn, err := quic.DialAddr(context.Background(), o.Far+quicPort, config, quicConfig)
		if err != nil {
			return nil, err
		}
		stream, err := conn.OpenStreamSync(context.Background())
		if err != nil {
			return nil, err
		}
		streams = append(streams, stream)
	}
	message := make([]byte, o.Size)
	if o.Play == "versus-quic-probe" {
		return quantiles(func() error {
			if _, err := streams[0].Write(message); err != nil {
				return err
			}
			_, err := io.ReadFull(streams[0], message)
			return err
		})
	}
	start := time.Now()
	counts := make([]uint64, len(streams))
	var all errgroup.Group
	for i, s := range streams {
		all.Go(func() error {
			for time.Since(start) < o.For {
				if _, err := s.Write(message); err != nil {
					return err
				}
			}
			s.Close()
			return binary.Read(s, binary.BigEndian, &counts[i]) // what has been read
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, n := range counts {
		total += n
	}
	return []float64{float64(total) / time.Since(start).Seconds()}, nil
}

// quicFar reads what comes and says how much it was, or sends it back.
func (o part) quicFar(in *bufio.Reader, out io.Writer) error {
	config, err := quicTLS()
	if err != nil {
		return err
	}
	listener, err := quic.ListenAddr(o.Far+quicPort, config, quicConfig)
	if err != nil {
		return err
	}
	fmt.Fprint(out, strings.Repeat("far\n", o.Peers))
	go func() {
		for {
			conn, err := listener.Accept(context.Background())
			if err != nil {
				return
			}
			go o.quicServe(conn)
		}
	}()
	_, err = io.Copy(io.Discard, in)
	return err
}

func (o part) quicServe(conn *quic.Conn) {
	s, err := conn.AcceptStream(context.Background())
	if err != nil {
		return
	}
	defer s.Close()
	if o.Play == "versus-quic-pong" {
		_, _ = io.CopyBuffer(struct{ io.Writer }{s}, struct{ io.Reader }{s}, make([]byte, o.Size))
		return
	}
	buffer, count := make([]byte, 1<<18), uint64(0)
	for err == nil {
		var n int
		n, err = s.Read(buffer)
		count += uint64(n)
	}
	_ = binary.Write(s, binary.BigEndian, count)
}
