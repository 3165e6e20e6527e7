package ui

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"railbed/fabric"
	"railbed/plan/spec"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

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
	for _, s := range spec.LinkSettings {
		more := s.By == spec.SoftSwitch
		if more && !soft {
			made.Without = append(made.Without, s.Key)
			made.Why = "only links of soft switches have them (kind: soft)"
			continue
		}
		made.Fields = append(made.Fields, formField{s.Key, s.Hint, more,
			[2]string{s.Text(&l.AToB.Direction), s.Text(&l.BToA.Direction)}})
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
	for _, s := range spec.LinkSettings {
		text, given := r.Set[s.Key]
		if !given {
			continue
		}
		known++
		set, err := parseSetting(s, text)
		if err != nil {
			problems = append(problems, problem{s.Key, err.Error()})
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

// parseSetting reads the text of a field as the value of its key in a file. An empty field turns the setting
// off.
func parseSetting(s *spec.LinkSetting, text string) (spec.Direction, error) {
	if text = cmp.Or(strings.TrimSpace(text), s.Off); text == "" {
		return spec.Direction{}, fmt.Errorf("%s: want a value, as in %s", s.Key, s.Hint)
	}
	return s.Parse(s.Key, text)
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
