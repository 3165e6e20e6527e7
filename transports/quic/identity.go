package quic

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"time"
)

// identity is the SHA-256 hash of an endpoint's certificate.
type identity [sha256.Size]byte

// newCertificate makes a key and a certificate for one life of an endpoint. Peers check the
// certificate's hash and nothing in it.
func newCertificate() (tls.Certificate, identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, identity{}, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.AddDate(1, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, identity{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, sha256.Sum256(der), nil
}

// identityOf returns the identity of the other end. TLS has checked that it holds the key.
func identityOf(certificates []*x509.Certificate) (identity, error) {
	if len(certificates) == 0 {
		return identity{}, errors.New("it has no certificate")
	}
	return sha256.Sum256(certificates[0].Raw), nil
}

// serverTLS accepts every client that has a certificate. streams.Endpoint.Admit looks up whose it is.
func serverTLS(own tls.Certificate) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{own},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		ClientAuth:   tls.RequireAnyClientCert,
		// A resumed session would skip the certificates.
		SessionTicketsDisabled: true,
	}
}

// clientTLS accepts the server with the given identity only.
func clientTLS(own tls.Certificate, to string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{own},
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{protocol},
		// VerifyConnection replaces the check of a name and of an authority, which there are none of.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := identityOf(state.PeerCertificates)
			if err == nil && string(id[:]) != to {
				err = errors.New("another endpoint listens at its address")
			}
			return err
		},
	}
}
