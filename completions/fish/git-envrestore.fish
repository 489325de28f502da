# Completion of `git envrestore` and `git-envrestore` for fish; nothing of ours is started.

function __git_envrestore_using
    set --local words (commandline -opc)
    contains -- envrestore $words; or contains -- git-envrestore $words
end

for program in git git-envrestore
    complete -c $program -n __git_envrestore_using -l dry-run -s n -d 'print the plan and change nothing'
    complete -c $program -n __git_envrestore_using -l to -r -d 'write the moment there, and touch nothing here'
    complete -c $program -n __git_envrestore_using -l plan -x -d 'only if it is still the plan with that id'
    complete -c $program -n __git_envrestore_using -l keep-new -d 'remove nothing that came after the moment'
    complete -c $program -n __git_envrestore_using -l keep-code -d 'leave the files alone that HEAD tracks'
    complete -c $program -n __git_envrestore_using -l only -x -a 'packages env databases files' -d 'only these classes'
    complete -c $program -n __git_envrestore_using -l head -d 'also move HEAD to the code commit'
    complete -c $program -n __git_envrestore_using -l relocate -d 'have what comes of another working tree name this one'
    complete -c $program -n __git_envrestore_using -l services -d 'with the state of the services that are configured'
    complete -c $program -n __git_envrestore_using -l verify -d 'then run the check of that moment'
    complete -c $program -n __git_envrestore_using -l attachments -r -d 'write what was attached there'
    complete -c $program -n __git_envrestore_using -l force -s f -d 'override the refusals that name it'
    complete -c $program -n __git_envrestore_using -l foreign -d 'restore what no key here signed'
    complete -c $program -n __git_envrestore_using -l undo -d 'take back the last restore'
    complete -c $program -n __git_envrestore_using -l redo -d 'go forth again after an undo'
    complete -c $program -n __git_envrestore_using -l continue -d 'finish a restore that was broken off'
    complete -c $program -n __git_envrestore_using -l abort -d 'take back a restore that was broken off'
    complete -c $program -n __git_envrestore_using -l json -d 'the answer as JSON'
    complete -c $program -n __git_envrestore_using -l color -d 'colour: always, never or auto'
    complete -c $program -n __git_envrestore_using -l no-color -d 'no colour'
    complete -c $program -n __git_envrestore_using -l no-pager -s P -d 'do not use the pager'
    complete -c $program -n __git_envrestore_using -l help -d 'the man page'
    complete -c $program -n __git_envrestore_using -l version -d 'the version of this program'
end
complete -c git -n '__fish_git_needs_command' -f -a envrestore -d 'go back to an earlier environment'
