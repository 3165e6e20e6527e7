package arbiter

import (
	"encoding/binary"

	"railbed/transports/rd/privacy"
)

// Messages, in UDP, big-endian: a head of 16 bytes and entries. All amounts count from the
// beginning and only grow. So a lost, duplicated or reordered message does no harm: the next one
// repeats its contents.
//
//	0   magic, 4 bytes    4  version 1    5  type    6  entries, 2 bytes
//	8   host, 4 bytes: the host that sends the request, or receives the answer
//	12  0
//
// An entry of a request has: to, 4 bytes; bytes requested so far, 8 bytes. An entry of a grant has:
// to, 4 bytes; bytes granted so far, 8 bytes; the time from which they may be sent, in ns since
// 1970, 8 bytes.
//
// Where the hosts share a secret, the version is 2. After the head come the sender's life, 8 bytes,
// and a counter, 8 bytes, which are authenticated with the head. Then come the entries, encrypted
// by AES-256-GCM, and the tag, 16 bytes. Keys and nonces are derived as for packets
// (transports/rd/PROTOCOL.md, 10.2), with "arbiter" in place of "packets". They use the lives of
// sender and receiver, the latter 0 in requests. The source is the message's type. The destination
// and the epoch are 0.
const (
	magic         = 0x52424152
	version       = 1
	sealedVersion = 2
	typeRequest   = 1
	typeGrant     = 2

	headLen    = 16
	requestLen = 12
	grantLen   = 20
	// mostEntries is how many grant entries, the longer kind, fit 1,400 bytes, sealed or not.
	mostEntries = (1400 - headLen - lifeLen - privacy.BoxLen) / grantLen
)

// newMessage writes a head without entries into the memory of b.
func newMessage(b []byte, kind uint8, host int) []byte {
	b = binary.BigEndian.AppendUint32(b[:0], magic)
	b = append(b, version, kind, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(host))
	return append(b, 0, 0, 0, 0)
}

// entries is the number of entries.
func entries(b []byte) int { return int(binary.BigEndian.Uint16(b[6:])) }

func addEntry(b []byte, to int, total uint64) []byte {
	binary.BigEndian.PutUint16(b[6:], uint16(entries(b)+1))
	b = binary.BigEndian.AppendUint32(b, uint32(to))
	return binary.BigEndian.AppendUint64(b, total)
}

// hostOf returns the host in a head.
func hostOf(b []byte) int { return int(binary.BigEndian.Uint32(b[8:])) }

// readMessage checks a message of a kind with entries of a length, and returns its host.
func readMessage(b []byte, kind uint8, each int) (host int, valid bool) {
	if len(b) < headLen || binary.BigEndian.Uint32(b) != magic || b[4] != version || b[5] != kind ||
		len(b) != headLen+entries(b)*each {
		return 0, false
	}
	return hostOf(b), true
}

// entry returns entry i of a message.
func entry(b []byte, i, each int) (to int, total uint64, rest []byte) {
	b = b[headLen+i*each:][:each]
	return int(binary.BigEndian.Uint32(b)), binary.BigEndian.Uint64(b[4:]), b[12:]
}
