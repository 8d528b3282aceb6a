package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/brellium/brellium-go"
)

// auditFilter is the filter of a list of audits, as given in flags.
type auditFilter struct {
	Status       string   `json:"status,omitempty"`
	Set          string   `json:"set,omitempty"`
	Document     string   `json:"document,omitempty"`
	Flags        []string `json:"flags,omitempty"`
	Since        string   `json:"since,omitempty"`
	Until        string   `json:"until,omitempty"`
	CreatedSince string   `json:"created_since,omitempty"`
	CreatedUntil string   `json:"created_until,omitempty"`
}

// register adds the flags that export and follow share.
func (f *auditFilter) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Status, "status", "", "only audits with this `status`: todo, processing, in_progress, error or complete")
	flags.StringVar(&f.Set, "set", "", "only audits of the question set with this `ID`")
	flags.StringVar(&f.Document, "document", "", "only audits of the document with this `ID`")
	flags.StringArrayVar(&f.Flags, "flag", nil, "only audits with this `flag`; repeat it for audits with any of several")
	flags.StringVar(&f.CreatedSince, "created-since", "", "only audits created after this `time`")
	flags.StringVar(&f.CreatedUntil, "created-until", "", "only audits created before this `time`")
}

func (f *auditFilter) params(now time.Time) (p brellium.AuditListParams, err error) {
	p = brellium.AuditListParams{Status: brellium.AuditStatus(f.Status), SetID: f.Set, DocumentID: f.Document, Flags: f.Flags}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{
		{"since", f.Since, &p.UpdatedAfter}, {"until", f.Until, &p.UpdatedBefore},
		{"created-since", f.CreatedSince, &p.CreatedAfter}, {"created-until", f.CreatedUntil, &p.CreatedBefore},
	} {
		if *t.into, err = parseTime(t.flag, t.text, now); err != nil {
			return p, err
		}
	}
	if !p.UpdatedBefore.IsZero() && p.UpdatedBefore.Before(p.UpdatedAfter) {
		return p, usage("--until is before --since.")
	}
	if !p.CreatedBefore.IsZero() && p.CreatedBefore.Before(p.CreatedAfter) {
		return p, usage("--created-until is before --created-since.")
	}
	return p, nil
}
