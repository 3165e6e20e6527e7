package cli

import (
	"cmp"
	"context"
	"regexp"

	"railbed/fabric"
	"railbed/plan"
	"railbed/testbed"
	"railbed/testbed/supervisor"
)

// linkChange is a changed setting of one direction of a link. The setting "state" is "up" or "down".
type linkChange struct {
	Link string `json:"link"`
	// Direction is a-to-b, from the first end of the link's name to the second, or b-to-a.
	Direction string `json:"direction"`
	From      string `json:"from"` // the end that sends in this direction
	To        string `json:"to"`
	plan.SettingChange
}

// changeLinks changes the links at a place, and prints which settings are different afterwards.
func (a *app) changeLinks(ctx context.Context, tb *testbed.Testbed, where string, change func() error) error {
	places, err := tb.LinksAt(where)
	if err != nil {
		return err
	}
	before, err := tb.Inspect(ctx)
	if err != nil {
		return err
	}
	if err := change(); err != nil {
		return err
	}
	now, err := tb.Inspect(ctx)
	if err != nil {
		return err
	}
	changes := []linkChange{}
	earlier := statesOf(before, places)
	for i, link := range statesOf(now, places) {
		was := earlier[i]
		changes = append(changes, changesOf(link, plan.AToB, link.A, link.B, was.AToB, link.AToB)...)
		changes = append(changes, changesOf(link, plan.BToA, link.B, link.A, was.BToA, link.BToA)...)
	}
	if a.output == "json" {
		return a.printJSON(changes)
	}
	a.printChanges(where, changes)
	return nil
}

// statesOf returns the states of links, in the order of the places.
func statesOf(s *supervisor.State, places []plan.LinkPlace) (states []fabric.LinkState) {
	byName := make(map[string]fabric.LinkState, len(s.Links))
	for _, link := range s.Links {
		byName[link.Name] = link
	}
	for _, place := range places {
		states = append(states, byName[place.Name])
	}
	return states
}

// changesOf returns the changes of one direction of a link.
func changesOf(link fabric.LinkState, direction string, from, to fabric.EndState,
	was, now fabric.DirectionState) (changes []linkChange) {
	settings := plan.DirectionChanges(was.Direction, now.Direction, link.MTU)
	if was.Up != now.Up {
		settings = append(settings, plan.SettingChange{Setting: "state", Was: stateWord(was.Up),
			Now: stateWord(now.Up)})
	}
	for _, setting := range settings {
		changes = append(changes, linkChange{link.Name, direction, from.Node, to.Node, setting})
	}
	return changes
}

func stateWord(up bool) string {
	if up {
		return "up"
	}
	return "down"
}

// printChanges prints a line for each changed setting. A setting that changed alike in both directions has
// one line.
func (a *app) printChanges(where string, changes []linkChange) {
	if len(changes) == 0 {
		a.say("nothing changed: %s was so already", where)
		return
	}
	type change struct {
		link string
		plan.SettingChange
	}
	directions := map[change]int{}
	for _, c := range changes {
		directions[change{c.Link, c.SettingChange}]++
	}
	t := a.newTable("LINK", "DIRECTION", "SETTING", "WAS", "NOW")
	for _, c := range changes {
		direction := c.From + " -> " + c.To
		if directions[change{c.Link, c.SettingChange}] == 2 {
			if c.Direction == plan.BToA {
				continue
			}
			direction = "both"
		}
		t.AppendRow([]any{c.Link, direction, c.Setting, readable(c.Was), readable(c.Now)})
	}
	t.Render()
}

// quantity is a value in the form of files: a number and its unit.
var quantity = regexp.MustCompile(`^([0-9.]+)([a-zA-Z%]+)$`)

// rateUnits are the units of rates for people, by the units in files.
var rateUnits = map[string]string{"bit": "bit/s", "kbit": "kbit/s", "mbit": "Mbit/s", "gbit": "Gbit/s",
	"tbit": "Tbit/s"}

// readable returns a value of a file as people write it: "100 Mbit/s", "2 ms", "0.1 %".
func readable(value string) string {
	parts := quantity.FindStringSubmatch(value)
	if parts == nil {
		return cmp.Or(value, "none")
	}
	return parts[1] + " " + cmp.Or(rateUnits[parts[2]], parts[2])
}
