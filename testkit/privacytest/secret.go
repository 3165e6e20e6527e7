// Package privacytest provides a secret for tests of encrypting endpoints.
package privacytest

import (
	"bytes"

	"railbed/transports/rd/privacy"
)

// Secret returns a secret, the same each time.
func Secret() *privacy.Secret {
	s, err := privacy.New(bytes.Repeat([]byte{0x5E}, privacy.SecretLen))
	if err != nil {
		panic(err) // it has the right length
	}
	return s
}
