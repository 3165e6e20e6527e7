package privacy

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"slices"
	"testing"
)

// TestBox opens what a box sealed by the document's words alone, and holds that a box
// takes each message once, whole, and of its own purpose and direction.
func TestBox(t *testing.T) {
	material := bytes.Repeat([]byte{7}, SecretLen)
	secret, err := New(material)
	if err != nil {
		t.Fatal(err)
	}
	direction := Direction{From: 0x0102030405060708, To: 0x1112131415161718, Source: 2, Destination: 3}
	sealer := secret.Box("arbiter", direction)
	var messages [][]byte
	for range 3 {
		b, err := sealer.Seal([]byte("head"), []byte("the body"))
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, b)
	}

	root, err := hkdf.Extract(sha256.New, material, []byte("railbed rd 1"))
	if err != nil {
		t.Fatal(err)
	}
	info := "arbiter\x01\x02\x03\x04\x05\x06\x07\x08\x11\x12\x13\x14\x15\x16\x17\x18\x02\x03\x00\x00"
	key, err := hkdf.Expand(sha256.New, root, info, 44)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key[:32])
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range messages {
		nonce := slices.Clone(key[32:])
		nonce[11] ^= byte(i)
		want := append([]byte("head"), 0, 0, 0, 0, 0, 0, 0, byte(i))
		body, err := aead.Open(nil, nonce, b[12:], b[:12])
		if err != nil || string(body) != "the body" || !bytes.Equal(b[:12], want) || len(b) != 4+8+BoxLen {
			t.Errorf("message %d: %x, %q, %v", i, b, body, err)
		}
	}

	other := direction
	other.Source++
	for name, box := range map[string]*Box{"another purpose": secret.Box("packets", direction),
		"another direction": secret.Box("arbiter", other),
		"the way back":      secret.Box("arbiter", direction.Back())} {
		if _, outcome := box.Open(slices.Clone(messages[0]), 4); outcome != Forged {
			t.Errorf("%s: %v", name, outcome)
		}
	}
	opener := secret.Box("arbiter", direction)
	for i, want := range map[int]Outcome{2: Opened, 0: Opened} {
		if body, outcome := opener.Open(slices.Clone(messages[i]), 4); outcome != want ||
			string(body) != "the body" {
			t.Errorf("message %d: %q, %v", i, body, outcome)
		}
		if _, outcome := opener.Open(slices.Clone(messages[i]), 4); outcome != Replayed {
			t.Errorf("message %d again: %v", i, outcome)
		}
	}
	for n := range messages[1] {
		if _, outcome := opener.Open(slices.Clone(messages[1][:n]), 4); outcome == Opened {
			t.Errorf("%d bytes of a message were opened", n)
		}
	}
	sealer.counter = 1 << 32
	if _, err := sealer.Seal(nil, nil); err == nil {
		t.Error("a key that is used up seals")
	}
}
