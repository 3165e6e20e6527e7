package input

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
)

// Bounds of a JSON document that may be somebody else's. The plan of 1,024 hosts has 8 MB and 100,000
// objects and lists.
const (
	// maxDocument is the largest size, in bytes.
	maxDocument = 64 << 20
	// maxMemory is the most memory that the decoded document may take by the estimate of memoryOf. Slices
	// that grow take up to twice as much.
	maxMemory = 512 << 20
)

// DecodeDocument reads a JSON document that may be somebody else's. A document that would fill the memory is
// an error: a few bytes, such as {} or null, may stand for an element of a kilobyte.
func DecodeDocument(r io.Reader, into any) error { return decode(r, into, false) }

// DecodeKnownFields is DecodeDocument for a document in which an unknown field is an error.
func DecodeKnownFields(r io.Reader, into any) error { return decode(r, into, true) }

func decode(r io.Reader, into any, known bool) error {
	text, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return err
	}
	if len(text) > maxDocument {
		return fmt.Errorf("the document has more than the limit of %d MiB", maxDocument>>20)
	}
	element := largest(reflect.TypeOf(into), map[reflect.Type]bool{})
	if need := memoryOf(text, element); need > maxMemory {
		return fmt.Errorf("the document takes %d MiB of memory, want at most %d MiB", need>>20, maxMemory>>20)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if known {
		decoder.DisallowUnknownFields()
	}
	return decoder.Decode(into)
}

// memoryOf estimates the memory of a decoded document from above. element is the size of its largest type.
func memoryOf(text []byte, element int64) (bytes int64) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			quoted = !quoted
		case '\\':
			i++ // only strings have backslashes
		case '{', '[', 'n': // n begins null, which may stand for a structure
			if !quoted {
				bytes += element
			}
		case ':', ',': // the value of a map, with its place in the map, or an element
			if !quoted {
				bytes += 48
			}
		}
	}
	return bytes + int64(len(text))
}

// largest returns the size of the largest type of which a type consists, in bytes.
func largest(t reflect.Type, seen map[reflect.Type]bool) int64 {
	if seen[t] {
		return 0
	}
	seen[t] = true
	most := int64(t.Size())
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		most = max(most, largest(t.Elem(), seen))
	case reflect.Map:
		most = max(most, largest(t.Elem(), seen), largest(t.Key(), seen))
	case reflect.Struct:
		for i := range t.NumField() {
			most = max(most, largest(t.Field(i).Type, seen))
		}
	}
	return most
}
