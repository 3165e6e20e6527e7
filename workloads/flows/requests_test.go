package flows

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReadRequests holds that the formats of public traces say the same.
func TestReadRequests(t *testing.T) {
	want := []Request{{0, 4808, 52}, {2500 * time.Millisecond, 3180, 26}, {2500 * time.Millisecond, 1, 1}}
	for name, text := range map[string]string{
		"azure.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9700000,4808,52\r\n" +
			"2023-11-16 18:17:06.4700000,3180,26\r\n2023-11-16 18:17:06.4700000,1,1",
		"zone.csv": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.250000+00:00,4808,52\n" +
			"2024-05-10 00:00:02.750000+00:00,3180,26\n2024-05-10 02:00:02.750000+02:00,1,1\n",
		"burst.csv": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n" +
			"5,ChatGPT,4808,52,490,Conversation log\n7.5,\"GPT-4\",3180,26,1317,x\n7.5,a,1,1,2,x\n",
		"mooncake.jsonl": `{"timestamp": 27482, "input_length": 4808, "output_length": 52, "hash_ids": [46, 47]}
{"timestamp": 29982, "input_length": 3180, "output_length": 26, "hash_ids": [46]}

{"timestamp": 29982, "input_length": 1, "output_length": 1, "hash_ids": []}`,
	} {
		got, err := ReadRequests(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].At = got[i].At.Round(time.Microsecond) // seconds since 1970 have no more in 64 bits
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestWrongRequests holds that a trace that is none says where and why.
func TestWrongRequests(t *testing.T) {
	const head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	for _, c := range []struct{ name, text, want string }{
		{"f.txt", "", "f.txt: want a file that ends in .csv or .jsonl"},
		{"f.csv", "", "f.csv:1: read the line of column names"},
		{"f.csv", head, "f.csv: the file has no request"},
		{"f.csv", "time,tokens\n1,2\n", `f.csv:1: columns "time,tokens", want TIMESTAMP`},
		{"f.csv", head + "1,2,3\n2,3\n", "f.csv:3: wrong number of fields"},
		{"f.csv", head + "soon,2,3\n", `f.csv:2: time "soon", want seconds`},
		{"f.csv", head + "1,many,3\n", `f.csv:2: a prompt of "many" tokens`},
		{"f.csv", head + "1,0,3\n", "f.csv:2: a prompt of 0 tokens, want 1 to"},
		{"f.csv", head + "1,1.5,3\n", "f.csv:2: a prompt of 1.5 tokens"},
		{"f.csv", head + "5,1,3\n4,1,3\n", "f.csv:3: the time decreases"},
		{"f.csv", head + "5,1,3\nNaN,1,3\n", "f.csv:3: the time decreases"},
		{"f.csv", head + "5,1,3\n1e300,1,3\n", "f.csv:3: the time decreases"},
		{"f.csv", head + "1,2,few\n", `f.csv:2: an answer of "few" tokens`},
		{"f.csv", head + "1,2,-3\n", "f.csv:2: an answer of -3 tokens, want 0 to"},
		{"f.jsonl", `{"timestamp": 1, "input_length": 4, "output_length": 0.5}`,
			"f.jsonl:1: an answer of 0.5 tokens"},
		{"f.jsonl", "\n", "f.jsonl: the file has no request"},
		{"f.jsonl", "{\"timestamp\": 1, \"input_length\": 4}\n{]\n", "f.jsonl:2: invalid character"},
		{"f.jsonl", `{"timestamp": 1}`, "f.jsonl:1: timestamp or input_length is missing"},
	} {
		if _, err := ReadRequests(c.name, []byte(c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// FuzzReadRequests holds that whatever is read is in order.
func FuzzReadRequests(f *testing.F) {
	f.Add([]byte("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n7,1,2\n"))
	f.Add([]byte(`{"timestamp": 27482, "input_length": 4808}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"f.csv", "f.jsonl"} {
			all, err := ReadRequests(name, text)
			if err != nil {
				continue
			}
			if all[0].At != 0 || !slices.IsSortedFunc(all, func(a, b Request) int {
				return int(a.At - b.At)
			}) {
				t.Errorf("%s: %v", name, all)
			}
		}
	})
}

// TestCacheOfRequests holds a schedule by hand: prompts of a trace take as long, and give as
// much, as they have tokens.
func TestCacheOfRequests(t *testing.T) {
	c := Cache{
		Ranks:      2,
		Prefill:    1,
		Layers:     2,
		LayerTime:  10 * time.Millisecond,
		LayerBytes: 1000,
		Tokens:     100,
		TimeScale:  0.5,
		Output:     3,
		Trace:      []Request{{0, 50, 7}, {100 * time.Millisecond, 200, 0}, {100 * time.Millisecond, 100, 0}},
	}
	s, err := c.Schedule()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	if err != nil || !slices.Equal(s.Prompts,
		[]Prompt{{0, 0, ms(10), 1, 7}, {ms(50), ms(50), ms(90), 1, 3}, {ms(50), ms(90), ms(110), 1, 3}}) {
		t.Fatal(s, err)
	}
	want := []Message{
		{0, 1, 500, 5 * time.Millisecond, 0, 0, false}, {0, 1, 500, 10 * time.Millisecond, 0, 0, false},
		{0, 1, 2000, 70 * time.Millisecond, 1, 0, false}, {0, 1, 2000, 90 * time.Millisecond, 1, 0, false},
		{0, 1, 1000, 100 * time.Millisecond, 2, 0, false}, {0, 1, 1000, 110 * time.Millisecond, 2, 0, false},
	}
	if !slices.Equal(s.Messages, want) {
		t.Errorf("%+v, want %+v", s.Messages, want)
	}
	c.Requests = 1
	if s, err := c.Schedule(); err != nil || len(s.Messages) != 2 {
		t.Errorf("of one request %v, %v", s, err)
	}
	c.Tokens = 0
	if _, err := c.Schedule(); err == nil {
		t.Error("a trace without the tokens of a layer's time gives a schedule")
	}
}
