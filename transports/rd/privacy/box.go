package privacy

import "encoding/binary"

// BoxLen is the number of bytes that a Box adds to a message: a counter and a tag.
const BoxLen = 8 + 16

// Box seals or opens the messages of one direction that are not datagrams of rd, such as an
// arbiter's. It uses AES-GCM with a key for its purpose, a counter as nonce, and a window that
// rejects replayed messages. A Box must be used by one goroutine at a time.
type Box struct {
	crypt   cryptor
	counter uint64 // of the next message
	came    window
}

// Box makes the box of a purpose and direction. Two boxes of the same purpose and direction must
// not both seal: they would use a nonce twice. So each sender draws Direction.From anew.
func (s *Secret) Box(purpose string, d Direction) *Box {
	return &Box{crypt: newCryptor(s.derive(purpose, d, 0))}
}

// Seal appends the counter and the encrypted body to a head. The head is authenticated, too. The
// body must not overlap the head's memory.
func (b *Box) Seal(head, body []byte) ([]byte, error) {
	if b.counter >= (Limits{}).withDefaults().Most {
		return nil, errUsedUp
	}
	head = binary.BigEndian.AppendUint64(head, b.counter)
	nonce := b.crypt.at(b.counter)
	b.counter++
	return b.crypt.aead.Seal(head, nonce, body, head), nil
}

// Open returns the body of a message, given the length of its head in bytes. It accepts each
// message once, and decrypts in place.
func (b *Box) Open(message []byte, head int) (body []byte, outcome Outcome) {
	if len(message) < head+BoxLen {
		return nil, Malformed
	}
	clear := head + 8
	counter := binary.BigEndian.Uint64(message[head:])
	if b.came.has(counter) {
		return nil, Replayed
	}
	body, err := b.crypt.aead.Open(message[clear:clear], b.crypt.at(counter), message[clear:],
		message[:clear])
	if err != nil {
		return nil, Forged
	}
	b.came.add(counter)
	return body, Opened
}
