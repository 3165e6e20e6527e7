package flows

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is a prompt that arrived at a server of language models.
type Request struct {
	At     time.Duration // after the first request
	Tokens int           // of the prompt
	Output int           // tokens of the answer, 0 if the trace does not say
}

// Limits of a trace of requests.
const (
	mostRequests = 1 << 20
	mostTokens   = 1 << 24
	mostSeconds  = 1e9
)

// ReadRequests reads the arrival times and lengths of prompts. The extension of the name gives the
// format. A .csv file has a line of column names. It needs TIMESTAMP, a time of day or seconds, and
// ContextTokens (Azure's LLM inference traces) or Request tokens (BurstGPT), and may have
// GeneratedTokens or Response tokens. A .jsonl file has a JSON value on each line with timestamp,
// in ms, input_length and optionally output_length (Mooncake). Times must not decrease. Errors name
// the line.
func ReadRequests(name string, text []byte) ([]Request, error) {
	r := requests{name: name}
	var err error
	switch filepath.Ext(name) {
	case ".csv":
		err = r.csv(text)
	case ".jsonl":
		err = r.json(text)
	default:
		return nil, fmt.Errorf("%s: want a file that ends in .csv or .jsonl", name)
	}
	if err == nil && len(r.all) == 0 {
		err = fmt.Errorf("%s: the file has no request", name)
	}
	return r.all, err
}

type requests struct {
	name  string
	all   []Request
	first float64 // time of the first request in seconds
}

func (r *requests) errorAt(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", r.name, line, fmt.Sprintf(format, args...))
}

// add adds a request that arrived at a time in seconds, from any origin.
func (r *requests) add(line int, at, tokens, output float64) error {
	if len(r.all) == 0 {
		r.first = at
	}
	after := at - r.first
	if !(after >= 0 && after < mostSeconds) || len(r.all) > 0 && seconds(after) < r.all[len(r.all)-1].At {
		return r.errorAt(line, "the time decreases, or is %g s or more after the first request: want times "+
			"in order", mostSeconds)
	}
	if !(tokens >= 1 && tokens <= mostTokens) || tokens != math.Trunc(tokens) {
		return r.errorAt(line, "a prompt of %v tokens, want 1 to %d", tokens, mostTokens)
	}
	if !(output >= 0 && output <= mostTokens) || output != math.Trunc(output) {
		return r.errorAt(line, "an answer of %v tokens, want 0 to %d", output, mostTokens)
	}
	if len(r.all) == mostRequests {
		return r.errorAt(line, "more than %d requests", mostRequests)
	}
	r.all = append(r.all, Request{At: seconds(after), Tokens: int(tokens), Output: int(output)})
	return nil
}

func (r *requests) csv(text []byte) error {
	reader := csv.NewReader(bytes.NewReader(text))
	reader.ReuseRecord, reader.TrimLeadingSpace = true, true
	head, err := reader.Read()
	if err != nil {
		return r.errorAt(1, "read the line of column names: %v", err)
	}
	column := func(names ...string) int {
		return slices.IndexFunc(head, func(h string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(h)))
		})
	}
	at, prompt, answer := column("timestamp"), column("contexttokens", "request tokens"),
		column("generatedtokens", "response tokens")
	if at < 0 || prompt < 0 {
		return r.errorAt(1,
			"columns %.80q, want TIMESTAMP and ContextTokens, or Timestamp and Request tokens",
			strings.Join(head, ","))
	}
	for {
		record, err := reader.Read()
		var wrong *csv.ParseError
		switch {
		case err == io.EOF:
			return nil
		case errors.As(err, &wrong):
			return r.errorAt(wrong.Line, "%v", wrong.Err)
		case err != nil:
			return fmt.Errorf("%s: %w", r.name, err)
		}
		line, _ := reader.FieldPos(0)
		when, err := timeOf(record[at])
		if err != nil {
			return r.errorAt(line, "%v", err)
		}
		tokens, err := strconv.ParseFloat(record[prompt], 64)
		if err != nil {
			return r.errorAt(line, "a prompt of %.40q tokens, want a number", record[prompt])
		}
		output := 0.0
		if answer >= 0 {
			if output, err = strconv.ParseFloat(record[answer], 64); err != nil {
				return r.errorAt(line, "an answer of %.40q tokens, want a number", record[answer])
			}
		}
		if err := r.add(line, when, tokens, output); err != nil {
			return err
		}
	}
}

// timeOf parses a time of day or a number, and returns seconds.
func timeOf(text string) (float64, error) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, nil
	}
	for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil { // accepts fractions of seconds too
			return float64(t.Unix()) + float64(t.Nanosecond())/1e9, nil
		}
	}
	return 0, fmt.Errorf("time %.40q, want seconds or a time such as 2023-11-16 18:17:03.979", text)
}

func (r *requests) json(text []byte) error {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v struct {
			Timestamp *float64 `json:"timestamp"`
			Tokens    *float64 `json:"input_length"`
			Output    float64  `json:"output_length"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return r.errorAt(i+1, "%v", err)
		}
		if v.Timestamp == nil || v.Tokens == nil {
			return r.errorAt(i+1, "timestamp or input_length is missing: want both, timestamp in ms")
		}
		if err := r.add(i+1, *v.Timestamp/1e3, *v.Tokens, v.Output); err != nil {
			return err
		}
	}
	return nil
}
