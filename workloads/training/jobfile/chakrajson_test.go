package jobfile

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
)

// chakraJSON are the files of chakraNodes as the jsonizer writes them: the JSON forms of the messages, one
// after the other. The protobuf library writes them.
func chakraJSON(t testing.TB, form protojson.MarshalOptions) (files []File) {
	for rank, nodes := range chakraNodes {
		var text strings.Builder
		for _, m := range messages(t, nodes...) {
			one, err := form.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(one)
		}
		// The schema of the tests has numbers for types, and the jsonizer writes their names.
		named := strings.NewReplacer(`"type":7`, `"type":"COMM_COLL_NODE"`, `"type": 7`, `"type": "COMM_COLL_NODE"`,
			`"type": 4`, `"type": "COMP_NODE"`).Replace(text.String())
		files = append(files, File{fmt.Sprintf("f.%d.json", rank), []byte(named)})
	}
	return files
}

// feederFiles are chakraFiles as Chakra's feeder reads them.
func feederFiles() []File {
	const compute = `{"Id": 7, "Name": "matmul", "NodeType": 4, "runtime": 250, "is_cpu_op": false, "data_deps": []}`
	const reduce = `{"Id": 3, "Name": "gradients", "NodeType": 7, "runtime": 1, "data_deps": [7, 5], "is_cpu_op": false, ` +
		`"comm_type": 0, "comm_size": 4096, "pg_name": "pair"}`
	return []File{
		{"f.0.json", []byte(`{"schema": "1.0", "workload_graph": [` + reduce + ",\n" + compute + `,
			{"Id": 5, "NodeType": 5, "ctrl_deps": [9], "comm_dst": 1, "comm_tag": 4, "comm_size": 100},
			{"Id": 9, "NodeType": 1}]}`)},
		{"f.1.json", []byte(`{"workload_graph": [` + compute + "," + reduce +
			`, {"Id": 5, "NodeType": 6, "comm_src": 0, "comm_tag": 4, "comm_size": 100}], "version": 3}`)},
	}
}

// TestChakraJSON: the JSON forms are the same program as the protobuf form.
func TestChakraJSON(t *testing.T) {
	want, err := readChakra(chakraFiles(t), pairOf(1, 0), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string][]File{
		"lines":      chakraJSON(t, protojson.MarshalOptions{Multiline: true}),
		"compact":    chakraJSON(t, protojson.MarshalOptions{}),
		"snake case": chakraJSON(t, protojson.MarshalOptions{UseProtoNames: true, UseEnumNumbers: true}),
		"feeder":     feederFiles(),
	} {
		got, err := readChakra(files, pairOf(1, 0), Options{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %+v, want %+v", name, err, got, want)
		}
	}
}

func TestWrongChakraJSON(t *testing.T) {
	const good = `{"version": "0.0.4"}
{"id": "7", "type": "COMP_NODE", "durationMicros": "250"}
{"id": "3", "type": "COMM_COLL_NODE", "dataDeps": ["7"],
 "attr": [{"name": "comm_type", "int64Val": "0"}, {"name": "comm_size", "int64Val": "4096"}]}
`
	for _, c := range []struct{ old, new, want string }{
		{good, "", "f.json:1:1: the file ends without a node"},
		{good, `{"version": "0.0.4"}`, "f.json:1:21: the file ends without a node"},
		{good, "[1]", "f.json:1:1: read node: want an object, not "},
		{`4096"}]}`, `4096"}]`, "f.json:3:1: read JSON: unexpected EOF"},
		{`["7"]`, `["7"}`, "f.json:3:55: read JSON: invalid character '}'"},
		{`"COMP_NODE"`, `"COMP"`, `f.json:2:1: type of node 7: "COMP", want a whole number or one of METADATA_NODE`},
		{`"COMP_NODE"`, `9`, "f.json:2:1: type of node 7: a node of type 9, want 1 to 7"},
		{`"250"`, `"3600000001"`, "f.json:2:1: durationmicros of node 7: a duration of 3600000001 us"},
		{`"250"`, `2.5`, `f.json:2:1: durationmicros of node 7: "2.5", want a whole number`},
		{`"7"]`, `"8"]`, "f.json:3:1: node 3 depends on node 8"},
		{`["7"]`, `"7"`, "f.json:3:1: datadeps of node 3: "},
		{`"3"`, `"7"`, "f.json:3:1: node 7 occurs twice"},
		{`"4096"`, `"big"`, `f.json:3:1: attr of node 3: comm_size: "big", want a whole number`},
		{`"int64Val": "4096"`, `"doubleVal": 10.5`,
			`f.json:3:1: attr of node 3: comm_size: "10.5", want a whole number`},
		{`"int64Val": "4096"`, `"floatVal": "NaN"`,
			`f.json:3:1: attr of node 3: comm_size: "NaN", want a whole number`},
		{`"4096"}`, `"4096"}, {"name": "pg_name", "doubleVal": 1.5}`,
			`f.json:3:1: attr of node 3: pg_name: "1.5", want a whole number`},
		{`"4096"`, `"0"`, "f.json:3:1: node 3 has no comm_size"},
		{`"name": "comm_type"`, `"key": 1`, "f.json:3:1: attr of node 3: name of an attribute"},
		{`"dataDeps"`, `"data_deps": [], "dataDeps"`, "f.json:3:1: read node: "},
		{good, `{"workload_graph": 5}`, "f.json:1:1: workload_graph: want a list of nodes"},
		{good, `{"workload_graph": {"a": []}}`, "f.json:1:1: workload_graph: want a list of nodes"},
		{good, "{\"workload_graph\": [\n 5]}", "f.json:2:2: read node: want an object"},
		{good, "{\"workload_graph\": [{\"Id\": 1, \"NodeType\": 7,\n \"comm_type\": \"x\"}]}",
			`f.json:1:21: commtype of node 1: "x", want a whole number`},
	} {
		text := strings.Replace(good, c.old, c.new, 1)
		_, err := readChakra([]File{{"f.json", []byte(text)}}, groups{}, Options{})
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s instead of %s: got  %v\nwant %s", c.new, c.old, err, c.want)
		}
	}
}

func FuzzChakraJSON(f *testing.F) {
	for _, file := range append(feederFiles(), chakraJSON(f, protojson.MarshalOptions{})...) {
		f.Add(file.Content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		checkRead(t)(readChakra([]File{{"f.0.json", content}}, pairOf(0), Options{}))
	})
}
