package jobfile

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"railbed/workloads/training"
)

// et is the part of Chakra's et_def.proto that the tests need, by its numbers, so that
// messages are the protobuf library's and not of our own making.
const et = `
name: "et.proto" package: "chakra" syntax: "proto3"
message_type { name: "Metadata" field { name: "version" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL } }
message_type { name: "Attr" oneof_decl { name: "value" }
  field { name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "double_val" number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "float_val" number: 5 type: TYPE_FLOAT label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "int32_val" number: 7 type: TYPE_INT32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "int64_val" number: 9 type: TYPE_INT64 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "uint64_val" number: 13 type: TYPE_UINT64 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "sint64_val" number: 17 type: TYPE_SINT64 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "fixed32_val" number: 19 type: TYPE_FIXED32 label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "bool_val" number: 27 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 0 }
  field { name: "string_val" number: 29 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 } }
message_type { name: "Node"
  field { name: "id" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "type" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "ctrl_deps" number: 4 type: TYPE_UINT64 label: LABEL_REPEATED }
  field { name: "data_deps" number: 5 type: TYPE_UINT64 label: LABEL_REPEATED options { packed: false } }
  field { name: "duration_micros" number: 7 type: TYPE_UINT64 label: LABEL_OPTIONAL }
  field { name: "attr" number: 10 type: TYPE_MESSAGE type_name: ".chakra.Attr" label: LABEL_REPEATED } }
`

// messages are messages in protobuf's text form, the first one of the metadata.
func messages(t testing.TB, texts ...string) (all []proto.Message) {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(et), &file); err != nil {
		t.Fatal(err)
	}
	described, err := protodesc.NewFile(&file, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range texts {
		m := dynamicpb.NewMessage(described.Messages().ByName(
			map[bool]protoreflect.Name{true: "Metadata", false: "Node"}[i == 0]))
		if err := prototext.Unmarshal([]byte(text), m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// encoded are messages as a file.
func encoded(t testing.TB, texts ...string) []byte {
	t.Helper()
	var content []byte
	for _, m := range messages(t, texts...) {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		content = protowire.AppendBytes(content, raw)
	}
	return content
}

const (
	metadata = `version: "0.0.4"`
	compute  = `id: 7 name: "matmul" type: 4 duration_micros: 250 attr { name: "is_cpu_op" bool_val: false }`
	reduce   = `id: 3 name: "gradients" type: 7 data_deps: [7, 5] attr { name: "comm_type" int64_val: 0 } attr { name: "comm_size" sint64_val: 4096 } attr { name: "pg_name" string_val: "pair" }`
)

// chakraFiles are a send, a computation and an all-reduce of both ranks.
func chakraFiles(t testing.TB) (files []File) {
	for rank, nodes := range chakraNodes {
		files = append(files, File{fmt.Sprintf("f.%d.et", rank), encoded(t, nodes...)})
	}
	return files
}

var chakraNodes = [][]string{
	{metadata, reduce, compute,
		`id: 5 type: 5 ctrl_deps: [9] attr { name: "comm_dst" int32_val: 1 } attr { name: "comm_tag" fixed32_val: 4 } attr { name: "comm_size" uint64_val: 100 }`, `id: 9 type: 1`},
	{metadata, reduce, compute,
		`id: 5 type: 6 attr { name: "comm_src" int32_val: 0 } attr { name: "comm_tag" int64_val: 4 } attr { name: "comm_size" uint64_val: 100 }`},
}

// pairOf is a file with one group.
func pairOf(ranks ...int) groups { return groups{found: true, ranks: map[string][]int{"pair": ranks}} }

func TestChakra(t *testing.T) {
	p, err := readChakra(chakraFiles(t), pairOf(1, 0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{
		{"matmul 250µs", "node 9 0s", "node 5 p2p broadcast 100B", "gradients pair all-reduce 4KiB"},
		{"node 5 p2p broadcast 100B", "matmul 250µs", "gradients pair all-reduce 4KiB"},
	}
	for rank := range want {
		if got := names(p, rank); !slices.Equal(got, want[rank]) {
			t.Errorf("rank %d does %q, want %q", rank, got, want[rank])
		}
	}
	last := p.Tasks[0][3]
	if o := p.Operations[last.Operation]; !slices.Equal(o.Ranks, []int{1, 0}) ||
		!slices.Equal(last.After, []int{2, 0}) {
		t.Errorf("%+v after %v, want ranks 1 and 0, after tasks 2 and 0", o, last.After)
	}
	if send := p.Operations[p.Tasks[0][2].Operation]; send.Channel != 4 ||
		!slices.Equal(send.Ranks, []int{0, 1}) {
		t.Errorf("%+v, want tag 4 from 0 to 1", send)
	}
}

// TestChakraAllGather checks that comm_size is the input of one rank, as in ASTRA-sim. Each rank of
// a ring sends that n-1 times.
func TestChakraAllGather(t *testing.T) {
	var files []File
	for rank := range 4 {
		files = append(files, File{fmt.Sprintf("f.%d.et", rank),
			encoded(t, metadata, `id: 1 type: 7 attr { name: "comm_type" int64_val: 2 } attr { name: "comm_size" int64_val: 4096 }`)})
	}
	p, err := readChakra(files, groups{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Sent(2); got != 3*4096 {
		t.Errorf("a rank sends %d bytes, want 3 times 4096", got)
	}
}

// Ranks that all send before they receive, as in collectives written out as messages, must not
// deadlock. The test has two steps of a ring, each after a computation.
// TestChakraFloats: attributes that are floating-point numbers are the same program as whole numbers, in
// protobuf and in JSON. Attributes that no task is made of may have fractions.
func TestChakraFloats(t *testing.T) {
	const node = `id: 3 type: 7 attr { name: "comm_type" int64_val: 0 } ` +
		`attr { name: "comm_size" int64_val: 1024 } attr { name: "pg_name" int64_val: 1 }`
	replacer := strings.NewReplacer("int64_val: 1024", "double_val: 1024", "int64_val", "float_val")
	floats := replacer.Replace(node) + ` attr { name: "share" double_val: 0.5 }`
	known := groups{found: true, ranks: map[string][]int{"1": {1, 0}}}
	read := func(name, node string) *training.Program {
		var files []File
		for rank := range 2 {
			file := File{fmt.Sprintf("f.%d.%s", rank, name), encoded(t, metadata, node)}
			if name == "json" {
				file.Content = nil
				for _, m := range messages(t, metadata, node) {
					one, err := protojson.Marshal(m)
					if err != nil {
						t.Fatal(err)
					}
					file.Content = append(file.Content, one...)
				}
			}
			files = append(files, file)
		}
		program, err := readChakra(files, known, Options{})
		if err != nil {
			t.Fatalf("%s %s: %v", name, node, err)
		}
		return program
	}
	want := read("et", node)
	for _, name := range []string{"et", "json"} {
		if got := read(name, floats); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestChakraRing(t *testing.T) {
	const ranks = 3
	var files []File
	for rank := range ranks {
		var nodes []string
		for step := range 2 {
			send := fmt.Sprintf(`id: %d type: 5 data_deps: [%s] attr { name: "comm_dst" int32_val: %d } attr { name: "comm_size" uint64_val: 4000 }`, 3*step, map[bool]string{true: "", false: "2"}[step == 0], (rank+1)%ranks)
			receive := fmt.Sprintf(`id: %d type: 6 data_deps: %d attr { name: "comm_src" int32_val: %d } attr { name: "comm_size" uint64_val: 4000 }`, 3*step+1, 3*step, (rank+ranks-1)%ranks)
			nodes = append(nodes, send, receive,
				fmt.Sprintf(`id: %d type: 4 duration_micros: 250 data_deps: %d`, 3*step+2, 3*step+1))
		}
		files = append(files, File{fmt.Sprintf("f.%d.et", rank),
			encoded(t, append([]string{metadata}, nodes...)...)})
	}
	p, err := readChakra(files, groups{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	spans, err := p.Predict(func(*training.Operation) time.Duration { return 100 * time.Microsecond })
	if err != nil {
		t.Fatal(err)
	}
	whole, times := p.Times(spans)
	if want := 700 * time.Microsecond; whole != want || p.Sent(1) != 8000 {
		t.Errorf("it takes %v and sends %d bytes, want %v and 8000", whole, p.Sent(1), want)
	}
	for rank, got := range times {
		if want := (training.Times{Compute: 500 * time.Microsecond,
			Exposed: 200 * time.Microsecond}); got != want {
			t.Errorf("rank %d: %+v, want %+v", rank, got, want)
		}
	}
}

func TestWrongChakra(t *testing.T) {
	broken := func(change func(node string) string) []byte {
		return encoded(t, metadata, compute, change(reduce))
	}
	replaced := func(old, new string) []byte {
		return broken(func(node string) string {
			return strings.Replace(strings.Replace(node, "[7, 5]", "7", 1), old, new, 1)
		})
	}
	start := len(encoded(t, metadata, compute)) + 1 // behind the length
	good := encoded(t, metadata, compute, strings.Replace(reduce, "[7, 5]", "7", 1))
	for _, c := range []struct {
		name    string
		content []byte
		at      int
		want    string
	}{
		{"empty", nil, 0, "the file ends without a node"},
		{"metadata alone", encoded(t, metadata), len(encoded(t, metadata)), "the file ends without a node"},
		{"cut", good[:len(good)-3], start - 1, "read length and message: unexpected EOF"},
		{"no field", append(slices.Clone(good), 2, 0xff, 0xff), len(good) + 1,
			"read protobuf field: unexpected EOF"},
		{"no value", append(slices.Clone(good), 2, 0x10, 0xff), len(good) + 1,
			"read value of field 2: unexpected EOF"},
		{"no type", replaced("type: 7", "type: 9"), -1, "a node of type 9, want 1 to 7"},
		{"twice", replaced("id: 3", "id: 7"), start, "node 7 occurs twice"},
		{"large together", encoded(t, metadata,
			`id: 3 type: 7 attr { name: "comm_type" int64_val: 2 } attr { name: "comm_size" int64_val: 1125899906842624 } attr { name: "pg_name" string_val: "two" }`), -1, "node 3 gathers 2251799813685248 bytes from 2 ranks, want at most"},
		{"no duration", encoded(t, metadata, `id: 7 type: 4 attr { name: "num_ops" int64_val: 5 }`),
			len(encoded(t, metadata)) + 1, "node 7 computes 5 num_ops without a duration"},
		{"nobody", replaced("data_deps: 7", "data_deps: 8"), start,
			"node 3 depends on node 8, which the file does not have"},
		{"itself", replaced("data_deps: 7", "data_deps: 3"), start, "node 3 depends on itself"},
		{"gather", replaced("int64_val: 0", "int64_val: 3"), start, "node 3 is a collective of comm_type 3"},
		{"no kind", replaced("comm_type", "comm_kind"), start, "node 3 is a collective of comm_type 0"},
		{"part of a byte", replaced("sint64_val: 4096", "double_val: 10.5"), -1,
			`comm_size of node 3: "10.5", want a whole number`},
		{"part of a byte in a float", replaced("sint64_val: 4096", "float_val: 10.5"), -1,
			`comm_size of node 3: "10.5", want a whole number`},
		{"no number", replaced("sint64_val: 4096", "double_val: nan"), -1,
			`comm_size of node 3: "NaN", want a whole number`},
		{"below 0", replaced("sint64_val: 4096", "double_val: -2"), start,
			"node 3 has a comm_size of 18446744073709551614, want at most"},
		{"part of a group", replaced(`string_val: "pair"`, "double_val: 1.5"), -1,
			`pg_name of node 3: "1.5", want a whole number`},
		{"no size", replaced("4096", "0"), start, "node 3 has no comm_size"},
		{"large", replaced("4096", "-2"), start,
			"node 3 has a comm_size of 18446744073709551614, want at most"},
		{"no group", replaced(`"pair"`, `"trio"`), start, `node 3 has group "trio", which `},
		{"to itself", replaced("type: 7", "type: 5"), start,
			"node 3 of rank 0 sends to or receives from rank 0"},
		{"long", encoded(t, metadata, strings.Replace(compute, "250", "3600000001", 1)), -1,
			"a duration of 3600000001 us"},
	} {
		_, err := readChakra([]File{{"f.et", c.content}}, groups{found: true,
			ranks: map[string][]int{"pair": {0}, "two": {0, 1}}}, Options{})
		if err == nil {
			t.Errorf("%s: it is taken", c.name)
			continue
		}
		// The library writes the fields of a message in any order, and words of its errors
		// with a space of its own choice.
		place, what, _ := strings.Cut(
			strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "f.et: byte "), ": ")
		if at, err := strconv.Atoi(place); err != nil || c.at >= 0 && at != c.at || at > len(c.content) ||
			!strings.HasPrefix(what, c.want) {
			t.Errorf("%s: got  byte %s: %s\nwant %d: %s", c.name, place, what, c.at, c.want)
		}
	}
	if _, err := readChakra(chakraFiles(t), pairOf(1, 0), Options{Ranks: 3}); err == nil {
		t.Error("two files for three ranks")
	}
	alone := chakraFiles(t)
	alone[1].Content = encoded(t, metadata, compute)
	if _, err := readChakra(alone, pairOf(1, 0), Options{}); err == nil ||
		!strings.Contains(err.Error(), "it deadlocks: rank 0 at task 2, node 5") {
		t.Errorf("%v, want rank 0 that waits for a receiver", err)
	}
}

func FuzzChakra(f *testing.F) {
	for _, file := range chakraFiles(f) {
		f.Add(file.Content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		checkRead(t)(readChakra([]File{{"f.0.et", content}}, pairOf(0), Options{}))
	})
}
