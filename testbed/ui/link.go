package ui

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"railbed/fabric"
	"railbed/plan"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// field is a setting of a link in the form of the page. Its text is written as in files.
type field struct {
	key, hint string
	// off is the text that an empty field stands for, or "" if the setting cannot be without a value.
	off string
	// soft reports whether only links of soft switches have the setting.
	soft bool
	// bare reports whether the text is YAML and no string.
	bare bool
	of   func(plan.Direction) string
}

var fields = []field{
	{key: "rate", hint: "1gbit", of: func(d plan.Direction) string { return d.Rate.String() }},
	{key: "queue", hint: "256KiB", of: func(d plan.Direction) string { return set(d.Queue) }},
	{key: "delay", hint: "10us", off: "0s", of: func(d plan.Direction) string { return set(d.Delay) }},
	{key: "jitter", hint: "2us", off: "0s", of: func(d plan.Direction) string { return set(d.Jitter) }},
	{key: "loss", hint: "0.1%", off: "0", of: func(d plan.Direction) string { return set(d.Loss) }},
	{key: "duplicate", hint: "0.1%", off: "0", of: func(d plan.Direction) string { return set(d.Duplicate) }},
	{key: "corrupt", hint: "0.1%", off: "0", of: func(d plan.Direction) string { return set(d.Corrupt) }},
	{key: "jitter-kind", hint: "uniform, normal or exponential", soft: true,
		of: func(d plan.Direction) string { return cmp.Or(d.JitterKind, spec.Uniform) }},
	{key: "reorder", hint: "1%", off: "0", soft: true,
		of: func(d plan.Direction) string { return set(d.Reorder) }},
	{key: "reorder-by", hint: "50us", soft: true,
		of: func(d plan.Direction) string { return set(d.ReorderBy) }},
	{key: "drop-every", hint: "1000", off: "0", soft: true, bare: true, of: func(d plan.Direction) string {
		if d.DropEvery == 0 {
			return ""
		}
		return strconv.FormatUint(d.DropEvery, 10)
	}},
	{key: "drop-list", hint: "[5, 6]", off: "[]", soft: true, bare: true, of: func(d plan.Direction) string {
		if len(d.DropList) == 0 {
			return ""
		}
		return strings.ReplaceAll(fmt.Sprint(d.DropList), " ", ", ")
	}},
	{key: "gilbert-elliott", hint: "{enter: 1%, leave: 20%}", off: "false", soft: true, bare: true,
		of: func(d plan.Direction) string {
			g := d.GilbertElliott
			if g.Enter.IsZero() {
				return ""
			}
			text := fmt.Sprintf("{enter: %s, leave: %s, loss: %s", g.Enter, g.Leave, g.Loss)
			if !g.LossGood.IsZero() {
				text += fmt.Sprintf(", loss-good: %s", g.LossGood)
			}
			return text + "}"
		}},
	{key: "flap", hint: "{every: 1s, for: 10ms}", off: "false", soft: true, bare: true,
		of: func(d plan.Direction) string {
			if d.Flap.For == 0 {
				return ""
			}
			return fmt.Sprintf("{every: %s, for: %s}", d.Flap.Every, d.Flap.For)
		}},
	{key: "overhead", hint: "24B", soft: true, of: func(d plan.Direction) string { return set(d.Overhead) }},
}

// set formats a value, and a value that is not set as "".
func set[T interface {
	comparable
	fmt.Stringer
}](value T) string {
	var zero T
	if value == zero {
		return ""
	}
	return value.String()
}

// form is the settings of a link, for the form of the page.
type form struct {
	Link string `json:"link"`
	// Without lists the settings that the link cannot have, and Why has the reason.
	Without []string    `json:"without,omitempty"`
	Why     string      `json:"why,omitempty"`
	Fields  []formField `json:"fields"`
}

type formField struct {
	Key    string    `json:"key"`
	Hint   string    `json:"hint"`
	More   bool      `json:"more,omitempty"` // one of the settings that only links of soft switches have
	Values [2]string `json:"values"`         // of the directions a-to-b and b-to-a
}

// serveLink answers with the form of a link.
func (s *Server) serveLink(w http.ResponseWriter, r *http.Request) {
	s.answerForm(w, r, r.FormValue("name"))
}

func (s *Server) answerForm(w http.ResponseWriter, r *http.Request, name string) {
	state, err := s.testbed.Sample(r.Context())
	if err != nil {
		failChange(w, err)
		return
	}
	i := slices.IndexFunc(state.Links, func(l fabric.LinkState) bool { return l.Name == name })
	if i < 0 {
		failChange(w, fmt.Errorf("link %q: %w", name, testbed.ErrNoSuchObject))
		return
	}
	l, soft := &state.Links[i], s.testbed.Plan().Soft()
	made := form{Link: name}
	for _, f := range fields {
		if f.soft && !soft {
			made.Without = append(made.Without, f.key)
			made.Why = "only links of soft switches have them (kind: soft)"
			continue
		}
		made.Fields = append(made.Fields, formField{f.key, f.hint, f.soft,
			[2]string{f.of(l.AToB.Direction), f.of(l.BToA.Direction)}})
	}
	answer(w, http.StatusOK, made)
}

// setRequest changes settings of a link, by their keys.
type setRequest struct {
	// Where is as in supervisor.LinkRequest.
	Where string            `json:"where"`
	Set   map[string]string `json:"set"`
}

// serveSet changes settings of a link and answers with its form. If a text is wrong, it changes nothing.
func (s *Server) serveSet(w http.ResponseWriter, r *http.Request) {
	var request setRequest
	if !readJSON(w, r, &request) {
		return
	}
	sets, problems := request.parse()
	if len(problems) > 0 {
		answer(w, http.StatusUnprocessableEntity, map[string][]problem{"problems": problems})
		return
	}
	if err := s.testbed.SetLink(r.Context(), request.Where, sets...); err != nil {
		failChange(w, err)
		return
	}
	name, _, _ := strings.Cut(request.Where, " ")
	s.answerForm(w, r, name)
}

// parse returns the settings, and what is wrong with each.
func (r *setRequest) parse() (sets []spec.Direction, problems []problem) {
	known := 0
	for _, f := range fields {
		text, given := r.Set[f.key]
		if !given {
			continue
		}
		known++
		set, err := f.parse(text)
		if err != nil {
			problems = append(problems, problem{f.key, err.Error()})
		}
		sets = append(sets, set)
	}
	switch {
	case known < len(r.Set):
		problems = append(problems, problem{Text: "the request has an unknown field: reload the page"})
	case known == 0:
		problems = append(problems, problem{Text: "no field differs from the settings of the link"})
	}
	return sets, problems
}

// parse reads the text of a field as the value of its key in a file.
func (f *field) parse(text string) (spec.Direction, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		text = f.off
	}
	switch {
	case text == "":
		return spec.Direction{}, fmt.Errorf("%s: want a value, as in %s", f.key, f.hint)
	case !f.bare:
		text = strconv.Quote(text)
	}
	set, err := spec.ParseDirection(f.key, fmt.Sprintf("{%s: %s}", f.key, text))
	var found spec.Problems
	if errors.As(err, &found) {
		for i := range found { // the position is the field
			found[i].Line, found[i].Path = 0, ""
		}
	}
	return set, err
}

// serveState takes a link or a direction of it down, or brings it up.
func (s *Server) serveState(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Where string `json:"where"`
		State string `json:"state"`
	}
	if !readJSON(w, r, &request) {
		return
	}
	err := s.testbed.ChangeLink(r.Context(),
		supervisor.LinkRequest{Where: request.Where, State: request.State})
	if err != nil {
		failChange(w, err)
		return
	}
	answer(w, http.StatusOK, struct{}{})
}

// failChange answers with the reason why the testbed did not do what was asked.
func failChange(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	switch {
	case errors.Is(err, testbed.ErrNoSuchObject):
		status = http.StatusNotFound
	case errors.Is(err, testbed.ErrNoAnswer):
		status = http.StatusGatewayTimeout
	}
	fail(w, status, err)
}
