package brellium

// EmailRecipientService manages who is sent email.
type EmailRecipientService struct{ client *Client }
