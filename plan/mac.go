package plan

import (
	"encoding/hex"
	"fmt"
)

// macOf returns the hardware address of the interface with this ordinal, counted from 1 over the
// whole testbed. The first octet 02 marks it as locally administered unicast (IEEE 802, the second
// lowest bit).
func macOf(ordinal int) MAC {
	return MAC{2, 0, byte(ordinal >> 24), byte(ordinal >> 16), byte(ordinal >> 8), byte(ordinal)}
}

// String returns six pairs of hex digits, such as 02:00:00:00:00:01.
func (m MAC) String() string {
	text, _ := m.MarshalText()
	return string(text)
}

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) {
	text := make([]byte, 0, 17)
	for i, octet := range m {
		if i > 0 {
			text = append(text, ':')
		}
		text = hex.AppendEncode(text, []byte{octet})
	}
	return text, nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(text []byte) error {
	var parsed MAC
	if len(text) != 17 {
		return fmt.Errorf("parse MAC %q: want six pairs of hex digits with colons", text)
	}
	for i := range parsed {
		pair := text[3*i : 3*i+2]
		if _, err := hex.Decode(parsed[i:i+1], pair); err != nil || i > 0 && text[3*i-1] != ':' {
			return fmt.Errorf("parse MAC %q: want six pairs of hex digits with colons", text)
		}
	}
	*m = parsed
	return nil
}
